use super::*;

fn wrong(text: &str) -> String {
    text.parse::<Timing>().unwrap_err().to_string()
}

#[test]
fn production_values_have_the_relations_that_are_checked() {
    assert_eq!(Timing::default().check(), Ok(()));
}

#[test]
fn named_intervals_are_shortened_and_others_keep_their_default() {
    let timing: Timing = "journal.write=0.5,webhook.drain=1".parse().unwrap();
    let mut expected = Timing::default();
    expected.journal.write = Duration::from_millis(500);
    expected.webhook.drain = Duration::from_secs(1);
    assert_eq!(timing, expected);
}

#[test]
fn unknown_names_and_bad_values_are_refused() {
    assert_eq!(wrong(""), "\"\": expected GROUP.NAME=SECONDS");
    assert_eq!(wrong("journal.write"), "\"journal.write\": expected GROUP.NAME=SECONDS");
    assert_eq!(wrong("journal.read=1"), "no interval is called \"journal.read\"");
    for value in ["", "0", "-1", "1h", "NaN", "inf", "0.001", "5.1"] {
        let expected = format!("journal.write is \"{value}\": expected between 0.01 and 5 seconds");
        assert_eq!(wrong(&format!("journal.write={value}")), expected);
    }
}

#[test]
fn every_relation_is_checked() {
    for (text, begins) in [
        ("lease.duration=14.5", "lease.duration and lease.uninstall"),
        ("lease.duration=5", "a third of lease.duration"),
        ("lease.duration=3,lease.request=0.5,lease.skew=1.5", "a third of lease.duration"),
        ("lease.duration=2,lease.request=0.5,lease.skew=0.5", "lease.look has"),
        ("lease.duration=4,lease.request=0.5,lease.skew=0.5", "lease.uninstall may"),
        ("lease.uninstall=14", "lease.uninstall may"),
        ("certificates.due=20", "certificates.report, "),
        ("certificates.gone=30", "certificates.report, "),
        ("certificates.forgotten=59", "certificates.report, "),
    ] {
        let why = wrong(text);
        assert!(why.starts_with(begins), "{text}: {why}");
    }
}
