use super::*;

fn screen(width: Option<usize>, colour: bool) -> Screen {
    Screen { width, colour }
}

#[test]
fn capabilities_come_from_the_terminal_and_the_environment() {
    let look = |terminal, measured, environment: &[(&str, &str)]| {
        let find = |name: &str| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let Screen { width, colour } = Screen::detect(terminal, measured, find);
        (width, colour)
    };
    assert_eq!(look(true, Some(120), &[]), (Some(120), true));
    assert_eq!(look(true, Some(120), &[("COLUMNS", "60")]), (Some(60), true));
    assert_eq!(look(true, None, &[("COLUMNS", "wide")]), (Some(80), true));
    // The shell of Emacs reports no columns.
    assert_eq!(look(true, Some(0), &[("TERM", "dumb")]), (Some(80), false));
    assert_eq!(look(true, Some(120), &[("NO_COLOR", "1")]), (Some(120), false));
    assert_eq!(look(true, Some(120), &[("NO_COLOR", "")]), (Some(120), true));
    // A pipe has neither, regardless of the shell's terminal.
    assert_eq!(look(false, Some(120), &[("COLUMNS", "60")]), (None, false));
}

#[test]
fn columns_are_aligned_by_their_visible_width() {
    let mut table = Table::new(&["KIND", "NAME", "WHY"]);
    table.row(["pvc".into(), "data".into(), "in use".into()]);
    table.below("    evidence\n");
    table.row([Field::toned(Tone::Bad, "namespace"), "日本".into(), "".into()]);
    let plain = "KIND        NAME   WHY\n\
                 pvc         data   in use\n    evidence\n\
                 namespace   日本\n";
    assert_eq!(table.text(screen(None, false)), plain);
    // Colour does not change the layout or the text.
    let coloured = table.text(screen(None, true));
    assert!(coloured.contains("\x1b[31mnamespace\x1b[0m   日本"), "{coloured}");
    let mut bare = coloured;
    for code in ["\x1b[31m", "\x1b[2m", "\x1b[0m"] {
        bare = bare.replace(code, "");
    }
    assert_eq!(bare, plain);
}

#[test]
fn the_last_column_is_wrapped_only_on_a_terminal() {
    let mut table = Table::new(&["NAME", "WHY"]);
    table.row(["data".into(), "the garbage collector waits for its dependents".into()]);
    assert_eq!(
        table.text(screen(Some(52), false)),
        "NAME   WHY\ndata   the garbage collector waits for its\n       dependents\n"
    );
    // In a very narrow terminal, the terminal breaks the lines.
    assert_eq!(table.text(screen(Some(20), false)).lines().count(), 3);
    assert_eq!(table.text(screen(None, false)).lines().count(), 2);
    let paragraph = screen(Some(30), false).paragraph(4, "so long that it takes two lines");
    assert_eq!(paragraph, "    so long that it takes two\n    lines\n");
}

#[test]
fn no_line_is_broken_inside_a_command() {
    let lines = |text: &str| screen(Some(30), false).lines(0, text);
    let refusal = "It is in use. To override: kubectl belay approve pvc/data -n db --reason \"a  b\". \
                   Details: kubectl belay why pvc/data -n db";
    assert_eq!(
        lines(refusal),
        [
            "It is in use. To override:",
            "kubectl belay approve pvc/data -n db --reason \"a  b\".",
            "Details:",
            "kubectl belay why pvc/data -n db",
        ]
    );
    for (text, command) in [
        ("run kubectl get pods -n a -o wide (as admin)", "kubectl get pods -n a -o wide"),
        (
            "kubectl patch cm/a -p '[{\"op\": \"x\"}]', and more",
            "kubectl patch cm/a -p '[{\"op\": \"x\"}]',",
        ),
        ("(kubectl belay why pvc/data -n db) and so on", "(kubectl belay why pvc/data -n db)"),
        (
            "next: kubectl belay why 'roles/it'\\''s; odd, (one)' -n db, and so on",
            "kubectl belay why 'roles/it'\\''s; odd, (one)' -n db,",
        ),
        ("kubectl logs deploy/a -n prod, or kubectl logs x", "kubectl logs deploy/a -n prod,"),
        (
            "next: kubectl belay admin crds | kubectl apply -f -, and",
            "kubectl belay admin crds | kubectl apply -f -,",
        ),
    ] {
        assert!(lines(text).iter().any(|line| line == command), "{:?}", lines(text));
    }
    // In a sentence, kubectl is a word, and a quote may be an apostrophe.
    let sentence = "kubectl deletes the objects in the given order, which can't work";
    assert_eq!(lines(sentence).len(), 3);
    let open = lines("run kubectl get pods 'as it is, and so on in another place");
    assert_eq!(open[1], "kubectl get pods 'as it is,");
}

#[test]
fn each_line_of_a_text_is_indented_as_it_began() {
    let text = "a heading that is too long for a line\n  - one that is too long for a line\n\n";
    let wrapped =
        "a heading that is too long\n  for a line\n  - one that is too long for\n    a line\n\n";
    assert_eq!(screen(Some(30), false).wrap(text), wrapped);
    assert_eq!(screen(None, false).wrap(text), text);
}

#[test]
fn a_narrow_table_puts_its_last_column_and_then_others_below() {
    let mut table = Table::new(&["NAME", "NAMESPACE", "WHY"]);
    table.row(["configmaps/data".into(), "shop".into(), "so long that it takes two lines".into()]);
    table.row(["b".into(), "shop".into(), "-".into()]);
    let at = |columns| table.text(screen(Some(columns), false));
    assert_eq!(
        at(62),
        "NAME              NAMESPACE   WHY\n\
         configmaps/data   shop        so long that it takes two lines\n\
         b                 shop        -\n"
    );
    assert_eq!(
        at(40),
        "NAME              NAMESPACE   WHY\n\
         configmaps/data   shop\n  so long that it takes two lines\n\
         b                 shop        -\n"
    );
    assert_eq!(
        at(30),
        "NAME              NAMESPACE\n  WHY\nconfigmaps/data   shop\n  so long that it takes two\n  \
         lines\nb                 shop\n  -\n"
    );
    assert_eq!(
        at(20),
        "NAME\n  NAMESPACE\n  WHY\nconfigmaps/data\n  shop\n  so long that it takes two lines\n\
         b\n  shop\n  -\n"
    );
    let mut table = Table::new(&["POLICY", "READY", "HELD", "DENIED", "RULES"]);
    for (name, denied) in [("claims-in-use", "1 (2 more)"), ("a", "0")] {
        let fields = [name, "yes", "40", denied, "always, whileUsed"];
        table.row(fields.map(Field::from));
    }
    assert_eq!(
        table.text(screen(Some(40), false)),
        "POLICY          READY   HELD\n  DENIED       RULES\n\
         claims-in-use   yes     40\n  1 (2 more)   always, whileUsed\n\
         a               yes     40\n  0            always, whileUsed\n"
    );
}

#[test]
fn text_of_users_does_not_control_the_terminal() {
    let name = "a\x1b[2Jb\r\nc";
    assert_eq!(screen(None, true).paint(Tone::Bad, name), "\x1b[31ma [2Jb  c\x1b[0m");
    let mut table = Table::new(&["NAME", "WHY"]);
    table.row([name.into(), name.into()]);
    table.below(&screen(None, false).paragraph(2, name));
    assert_eq!(
        table.text(screen(None, false)),
        "NAME        WHY\na [2Jb  c   a [2Jb  c\n  a [2Jb  c\n"
    );
}

#[test]
fn a_long_list_is_cut_with_its_count_unless_all_is_asked_for() {
    let list: Vec<usize> = (0..48).collect();
    let (shown, rest) = cut(&list, 5, false, "objects");
    assert_eq!((shown.len(), rest.as_deref()), (5, Some("… and 43 more objects; --all")));
    assert_eq!(cut(&list, 5, true, "objects"), (&list[..], None));
    for whole in [47, 48, 49] {
        assert_eq!(cut(&list, whole, false, "objects"), (&list[..], None), "{whole}");
    }
}

#[test]
fn progress_is_silent_without_a_terminal_and_at_first() {
    let calls = std::cell::Cell::new(0);
    let text = || {
        calls.set(calls.get() + 1);
        String::new()
    };
    let long_ago = Instant::now().checked_sub(DELAY).unwrap();
    for (enabled, began, expected) in
        [(false, long_ago, 0), (true, Instant::now(), 0), (true, long_ago, 1)]
    {
        calls.set(0);
        let progress = Progress { enabled, began, last: Slot::new(None) };
        progress.say(text);
        // An update so soon after the first would only flicker.
        progress.say(text);
        assert_eq!(calls.get(), expected);
    }
}

#[test]
fn clean_keeps_lines_and_own_colours_and_removes_other_control_characters() {
    let colour = Screen { width: Some(80), colour: true };
    let ours = format!(
        "{} and {}\n\tmore\n",
        colour.paint(Tone::Bad, "NO"),
        colour.paint(Tone::Good, "yes")
    );
    assert_eq!(colour.clean(&ours), ours);
    // Without colours, all escape sequences are removed.
    assert!(!Screen::pipe().clean(&ours).contains('\x1b'));
    for (written, shown) in [
        ("a\x1b[2Jb", "a [2Jb"),
        ("a\rb\u{9b}2Jc\u{7f}", "a b 2Jc "),
        // A foreign colour, a colour without an end, and a colour with another end.
        ("\x1b[35mx\x1b[0m", " [35mx [0m"),
        ("\x1b[31mx", " [31mx"),
        ("\x1b[31mx\ny\x1b[0m", " [31mx\ny [0m"),
        ("\x1b[31mx\x1b]0;title\x07\x1b[0m", " [31mx ]0;title  [0m"),
        ("\x1b", " "),
        ("häuser → 屋", "häuser → 屋"),
    ] {
        assert_eq!(colour.clean(written), shown, "{written:?}");
    }
}

#[test]
fn controls_of_the_text_direction_are_shown_as_spaces() {
    assert_eq!(without_controls("a\u{202e}b\u{2066}c\u{1b}d"), "a b c d");
}
