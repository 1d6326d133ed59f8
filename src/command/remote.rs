//! What the cluster side says, as commands say it.

use super::CommandError;

/// What could not be determined.
pub fn unknown(what: String) -> CommandError {
    CommandError::Remote(as_me(&what))
}

/// What the cluster side says of its own account is here said of the person
/// who asks.
pub fn as_me(text: &str) -> String {
    text.replace("belay's account may not", "you may not")
}
