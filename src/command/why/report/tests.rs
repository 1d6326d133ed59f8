use super::*;
use crate::command::document::BlockerReport;
use crate::command::screen::Screen;
use crate::command::webhooks::Webhooks;

fn text(report: &WhyReport) -> String {
    report.text(View { screen: Screen::pipe(), all: false, wide: false, verbose: false })
}

/// A short report.
fn report() -> WhyReport {
    WhyReport {
        object: Object::default(),
        subject: "alice".to_owned(),
        deletable: true,
        verdict: ReportedVerdict::Allow,
        refused_otherwise: None,
        is_belay_silent: false,
        warnings: Vec::new(),
        blockers: Vec::new(),
        more: 0,
        orphaning: Vec::new(),
        orphaning_next_step: None,
        next_step: None,
        approval: None,
        may_approve: None,
        may_approve_if_creating: Vec::new(),
        you_may: None,
        automatic: Vec::new(),
        approvals: Vec::new(),
        uncounted: Vec::new(),
        exempted: Vec::new(),
        policies: Vec::new(),
        label_warning: None,
        terminating: None,
        not_read: Vec::new(),
        evidence_not_read: Vec::new(),
        finalizers: Vec::new(),
        collected: None,
        managed_by: vec!["Helm release web\u{1b}[2J".to_owned()],
        written_by: None,
        refused: Vec::new(),
        leader: Leader::from_lease(&Ok::<_, ()>(None)),
        approvers: None,
        named: "configmap \"settings\"".to_owned(),
        of_files: false,
        knows_policies: true,
        why_webhooks_inactive: None,
        no_leader_text: Webhooks::default().no_leader_text(),
    }
}

#[test]
fn the_report_names_the_subject_and_the_missing_leader() {
    let report = report();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["subject"], json.get("user")), (&"alice".into(), None));
    assert_eq!(
        text(&report).lines().next(),
        Some("user \"alice\" can delete configmap \"settings\" now")
    );
    let text = text(&report);
    let unled = "belay has no leader: while it is down, the API server refuses every delete of a \
                 kind that a policy names; next: check that its Pods run\n";
    assert!(text.contains(unled), "{text}");
    let ignoring = Webhooks { ignores_failures: true, ..Webhooks::default() }.no_leader_text();
    assert!(ignoring.contains("accepts the deletes that policies deny (failurePolicy Ignore); "));
    // Text that users write into an object can't control the terminal.
    assert!(text.contains("\nmanaged by: Helm release web [2J\n"), "{text}");
}

fn blocker(says: &str) -> ExplainedBlocker {
    ExplainedBlocker {
        is_listed: false,
        blocker: BlockerReport {
            verdict: ReportedVerdict::Deny,
            reason: "InUse",
            object: Object::default(),
            message: says.to_owned(),
            policies: vec!["policy p".to_owned()],
            by: "policy p".to_owned(),
            is_hold: false,
        },
        causes: Vec::new(),
        more: 0,
        approval: Approval {
            required: Some(1),
            given: Vec::new(),
            right: "a right".to_owned(),
            command: "kubectl belay approve x".to_owned(),
            known: true,
        },
    }
}

#[test]
fn reasons_with_the_same_message_and_verdict_are_one_with_its_approval() {
    let with = |says, by: &str, verdict| {
        let mut explained = blocker(says);
        (explained.blocker.by, explained.blocker.verdict) = (by.to_owned(), verdict);
        explained.approval.command = format!("kubectl belay approve {by}");
        explained
    };
    let blockers = vec![
        with("a", "p", ReportedVerdict::Deny),
        with("b", "q", ReportedVerdict::Deny),
        with("a", "r", ReportedVerdict::Deny),
        with("a", "s", ReportedVerdict::Audit),
    ];
    let report = WhyReport { verdict: ReportedVerdict::Deny, blockers, ..report() };
    let lines: Vec<String> = text(&report).lines().take(8).map(str::to_owned).collect();
    let command = |by: &str| {
        format!(
            "  to override: kubectl belay approve {by} (needs 1 approval, from a person with a right)"
        )
    };
    let expected = [
        "- a; p (InUse), r (InUse)".to_owned(),
        command("p"),
        command("r"),
        "- b; q (InUse)".to_owned(),
        command("q"),
        "- a; s (InUse)".to_owned(),
        "  belay only records this".to_owned(),
    ];
    assert_eq!(lines[1..], expected);
}

#[test]
fn the_commands_to_delete_it_are_printed_once() {
    let unread = |resource: &str, why: &str| FailedRead {
        resource: resource.to_owned(),
        why: why.to_owned(),
    };
    let forbidden = "forbidden for you";
    let report = WhyReport {
        deletable: false,
        verdict: ReportedVerdict::Deny,
        blockers: vec![blocker("a"), blocker("b")],
        next_step: Some("delete it first".to_owned()),
        automatic: vec!["once Job shop/a has ended".to_owned()],
        approvers: Some(Approvers {
            named: vec!["alice".to_owned(), "group sre".to_owned()],
            you: Some(true),
            ..Approvers::default()
        }),
        not_read: vec![unread("a", "x"), unread("b", forbidden), unread("c", forbidden)],
        evidence_not_read: vec![unread("events", forbidden), unread("nodes", "x")],
        leader: Leader::from_lease(&Err(())),
        ..report()
    };
    assert_eq!(
        text(&report),
        "user \"alice\" can't delete configmap \"settings\" now:\n\
         - a; policy p (InUse)\n\
         \x20 to override: kubectl belay approve x (needs 1 approval, from a person with a right)\n\
         - b; policy p (InUse)\n\
         next step: delete it first\n\
         once Job shop/a has ended\n\
         who can approve: alice, group sre (includes you)\n\
         no policy selects this object itself\n\
         managed by: Helm release web [2J\n\
         not read: a: x\n\
         not read: 2 kinds: forbidden for you; --verbose lists them\n\
         incomplete, because belay could not read: events, nodes\n"
    );
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn an_unknown_verdict_is_not_reported_as_a_refusal() {
    let report = WhyReport {
        deletable: false,
        verdict: ReportedVerdict::Unknown,
        blockers: vec![blocker("belay cannot tell")],
        ..report()
    };
    let text = text(&report);
    let first = "it is unknown whether user \"alice\" can delete configmap \"settings\":\n";
    assert!(text.starts_with(first), "{text}");
    assert_eq!(report.exit_code(), 3);
}

#[test]
fn an_approver_without_the_right_to_delete_sees_how_to_approve() {
    let refused = |verdict| WhyReport {
        object: Object { arguments: "configmaps/settings -n shop".to_owned(), ..Object::default() },
        verdict,
        refused_otherwise: Some("you may not delete it".to_owned()),
        ..report()
    };
    let command = "kubectl belay approve configmaps/settings -n shop --reason \"…\"\n";
    let unknown = text(&refused(ReportedVerdict::Unknown));
    assert!(unknown.contains(command), "{unknown}");
    // Nothing has to be approved.
    assert!(!text(&refused(ReportedVerdict::Allow)).contains("approve"));
}

#[test]
fn a_hold_is_no_reason_for_a_refusal() {
    let held = || {
        let mut held = blocker("it stays until belay confirms that nothing uses it");
        held.blocker.verdict = ReportedVerdict::Hold;
        held
    };
    let report = |refused: Option<&str>| WhyReport {
        deletable: false,
        verdict: ReportedVerdict::Hold,
        refused_otherwise: refused.map(str::to_owned),
        blockers: vec![held()],
        ..report()
    };
    let refused = text(&report(Some("ValidatingAdmissionPolicy 'x' denied it")));
    assert!(
        refused.starts_with(
            "user \"alice\" can't delete configmap \"settings\" now:\n\
             - ValidatingAdmissionPolicy 'x' denied it\n\
             after an accepted DELETE, it stays Terminating while:\n\
             - it stays until belay confirms that nothing uses it; policy p (InUse)\n"
        ),
        "{refused}"
    );
    assert!(!refused.contains("approve"), "{refused}");
    assert!(text(&report(None)).contains("approve"));
}

#[test]
fn a_reason_of_several_policies_is_printed_once_with_all_of_them() {
    let mut holding = blocker("a");
    holding.blocker.by = "policy q".to_owned();
    holding.approval.command = "kubectl belay approve y".to_owned();
    let listed = ExplainedBlocker { is_listed: true, ..blocker("b") };
    let blockers = vec![blocker("a"), holding, blocker("a"), listed];
    let text = text(&WhyReport { verdict: ReportedVerdict::Deny, blockers, ..report() });
    assert_eq!(text.matches("\n- ").count(), 1, "{text}");
    assert!(text.contains("\n- a; policy p (InUse), policy q (InUse)\n"), "{text}");
    assert!(text.contains("approve x ") && text.contains("approve y "), "{text}");
}
