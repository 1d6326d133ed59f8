//! Enums whose values have a text each.

/// Defines an enum, and a function that returns the text of a value.
macro_rules! text_enum {
    (
        $(#[$about:meta])*
        $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }
        $(#[$text_doc:meta])*
        $text_vis:vis fn $text_of:ident;
    ) => {
        $(#[$about])*
        $vis enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            $(#[$text_doc])*
            $text_vis fn $text_of(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

pub(crate) use text_enum;
