//! The Pods of the chart and their arguments.

use serde_json::{Value, json};

use crate::helm::{Objects, Render, ci, strings};

/// The Pod specs in all workloads.
fn pods(objects: &Objects) -> Vec<(String, &Value)> {
    let spec = |object: &'_ Value| -> Option<String> {
        let pod = match object["kind"].as_str()? {
            "Deployment" | "Job" => "/spec/template/spec",
            "Pod" => "/spec",
            _ => return None,
        };
        Some(pod.to_owned())
    };
    let named = |object: &Value| {
        format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', "")
    };
    objects.0.iter().filter_map(|o| Some((named(o), o.pointer(&spec(o)?)?))).collect()
}

#[test]
fn every_pod_keeps_to_pod_security_restricted() {
    for (file, path) in ci() {
        let objects = Render::default().with(&path).set("crds.keep=false").objects();
        let pods = pods(&objects);
        assert!(pods.len() >= 4, "{file}: {pods:?}");
        for (name, pod) in pods {
            let context = &pod["securityContext"];
            assert_eq!(context["runAsNonRoot"], true, "{file} {name}");
            assert_eq!(context["runAsUser"], 65532, "{file} {name}");
            assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault", "{file} {name}");
            for forbidden in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
                assert_eq!(pod.get(forbidden), None, "{file} {name}: {forbidden}");
            }
            for volume in pod["volumes"].as_array().into_iter().flatten() {
                assert!(volume.get("secret").is_some(), "{file} {name}: {volume}");
            }
            let containers = pod["containers"].as_array().unwrap();
            assert_eq!(containers.len(), 1, "{file} {name}");
            for container in containers {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{file} {name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{file} {name}");
                assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{file} {name}");
                assert!(container["resources"]["requests"].is_object(), "{file} {name}");
                assert_eq!(container.get("command"), None, "the image says what runs");
            }
        }
    }
}

#[test]
fn replicas_end_after_they_have_drained_and_given_back_the_lease() {
    for drain in [0, 5, 60] {
        let objects = Render::default().set(&format!("webhook.drainSeconds={drain}")).objects();
        let pod = &objects.of("Deployment")[0]["spec"]["template"]["spec"];
        let arguments = strings(&pod["containers"][0]["args"]);
        assert!(arguments.contains(&&*format!("--drain={drain}")), "{arguments:?}");
        // Ten seconds for open requests, three for the Lease.
        assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() > drain + 13);
    }
}

#[test]
fn certificates_come_in_one_of_three_ways() {
    let told = |render: Render| {
        let objects = render.objects();
        let pod = &objects.of("Deployment")[0]["spec"]["template"]["spec"];
        let arguments = strings(&pod["containers"][0]["args"]);
        let source = arguments.iter().find(|a| a.starts_with("--certificates=")).copied();
        let secret = pod["volumes"][0]["secret"]["secretName"].as_str().unwrap_or_default();
        let mounted = pod["containers"][0]["volumeMounts"][0]["mountPath"].as_str();
        let folder = arguments.iter().find_map(|a| a.strip_prefix("--cert-dir="));
        assert_eq!(mounted, folder);
        let role = objects.get("Role", "belay")["rules"].to_string();
        assert!(role.contains("belay-path"), "{role}");
        let secrets = role.contains("belay-tls");
        (source.unwrap().to_owned(), secret.to_owned(), secrets, objects.of("Certificate").len())
    };
    let own = told(Render::default());
    assert_eq!(own, ("--certificates=own".to_owned(), String::new(), true, 0));
    let manager = told(Render::default().set("certManager.enabled=true"));
    assert_eq!(manager, ("--certificates=files".to_owned(), "belay-tls".to_owned(), false, 2));
    let issuer = "certManager={\"enabled\":true,\"issuerRef\":{\"name\":\"corporate\"}}";
    let issued = told(Render::default().set(issuer));
    assert_eq!(issued, ("--certificates=files".to_owned(), "belay-tls".to_owned(), false, 1));
    let existing = told(Render::default().set("existingSecret=\"s\""));
    assert_eq!(existing, ("--certificates=files".to_owned(), "s".to_owned(), false, 0));
}

#[test]
fn a_budget_is_there_where_it_can_be_kept() {
    let budgets =
        |value: &str| Render::default().set(value).objects().of("PodDisruptionBudget").len();
    assert_eq!(budgets("replicas=2"), 1);
    assert_eq!(budgets("replicas=1"), 0);
    assert_eq!(budgets("podDisruptionBudget.enabled=false"), 0);
}

#[test]
fn the_service_selects_the_replicas_and_no_hook() {
    let objects = Render::default().set("crds.keep=false").objects();
    let selector = objects.get("Service", "belay")["spec"]["selector"].as_object().unwrap();
    let selects = |labels: &Value| selector.iter().all(|(key, value)| labels[key] == *value);
    let deployment = objects.get("Deployment", "belay");
    assert!(selects(&deployment["spec"]["template"]["metadata"]["labels"]));
    assert!(selects(&deployment["spec"]["selector"]["matchLabels"]));
    for job in objects.of("Job") {
        assert!(!selects(&job["spec"]["template"]["metadata"]["labels"]), "{job}");
    }
    assert_eq!(objects.of("Job").len(), 3);
    assert!(!selects(&objects.of("Pod")[0]["metadata"]["labels"]));
}

/// A hook, its event and its command.
const HOOKS: &[(&str, &str, &[&str])] = &[
    (
        "belay-uninstall",
        "pre-delete",
        &["admin", "uninstall", "--yes", "--installation=belay/belay", "--timeout=180"],
    ),
    ("belay-crds-upgrade", "pre-install,pre-upgrade", &["admin", "crds", "--apply"]),
    ("belay-crds-delete", "post-delete", &["admin", "crds", "--delete"]),
    ("belay-selftest", "test", &["admin", "selftest", "--namespace=default"]),
];

#[test]
fn each_hook_runs_one_command_with_an_account_of_the_same_hook() {
    let objects = Render::default().set("crds.keep=false").objects();
    let hook = |object: &Value, key: &str| {
        object["metadata"]["annotations"][format!("helm.sh/{key}")].as_str().map(str::to_owned)
    };
    for (name, on, command) in HOOKS {
        let runs = objects.find("Job", name).or_else(|| objects.find("Pod", name)).unwrap();
        let pod = runs.pointer("/spec/template/spec").unwrap_or(&runs["spec"]);
        assert_eq!(strings(&pod["containers"][0]["args"]), *command, "{name}");
        assert_eq!(pod["serviceAccountName"], *name);
        let weight = |object: &Value| hook(object, "hook-weight").unwrap().parse::<i64>().unwrap();
        let own = objects.0.iter().filter(|object| {
            object["metadata"]["name"].as_str().is_some_and(|other| other.starts_with(name))
        });
        let own: Vec<_> = own.collect();
        assert!(own.len() >= 4, "{name}: account, role, binding, and what runs");
        for object in own {
            assert_eq!(hook(object, "hook").as_deref(), Some(*on), "{object}");
            let policy = "before-hook-creation,hook-succeeded";
            assert_eq!(hook(object, "hook-delete-policy").as_deref(), Some(policy));
            let same = object["kind"] == runs["kind"];
            assert_eq!(weight(object) < weight(runs), !same, "rights come first: {object}");
        }
    }
    let count = |value: &str, kind: &str| {
        let mut names: Vec<_> = Render::default()
            .set(value)
            .objects()
            .of(kind)
            .iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(count("uninstall.enabled=false", "Job"), ["belay-crds-upgrade"]);
    assert_eq!(count("crds.upgrade=false", "Job"), ["belay-uninstall"]);
    assert_eq!(count("selftest.enabled=false", "Pod"), [""; 0]);
    let abandons = Render::default().set("uninstall.abandon=true").objects();
    let job = abandons.get("Job", "belay-uninstall");
    assert!(job.to_string().contains("--abandon"));
}

#[test]
fn an_uninstall_ends_before_the_timeout_of_helm() {
    let told = |render: Render| {
        let objects = render.objects();
        let job = objects.get("Job", "belay-uninstall");
        let arguments = &job["spec"]["template"]["spec"]["containers"][0]["args"];
        let timeout = strings(arguments).iter().find_map(|a| a.strip_prefix("--timeout="));
        (timeout.map(|seconds| seconds.parse::<u64>().unwrap()), job["spec"].clone())
    };
    // helm waits for five minutes. In this time belay also waits for the Lease and
    // removes the holds.
    let (limit, spec) = told(Render::default());
    assert!(limit.is_some_and(|limit| limit <= 240), "{limit:?}");
    // Exit code 1 is final, so the Job does not retry.
    let rule = &spec["podFailurePolicy"]["rules"][0];
    let no = json!({"containerName": "belay", "operator": "In", "values": [1]});
    assert_eq!((&rule["action"], &rule["onExitCodes"]), (&json!("FailJob"), &no));
    assert_eq!(told(Render::default().set("uninstall.timeoutSeconds=900")).0, Some(900));
    assert_eq!(told(Render::default().set("uninstall.timeoutSeconds=0")).0, None);
    let unset = told(Render::default().set("uninstall.timeoutSeconds=null")).0;
    assert_eq!(unset, limit, "values of an older chart do not have it");
}

#[test]
fn whatever_is_scraped_is_a_port_of_a_service_and_of_the_replicas() {
    let objects = Render::default().set("serviceMonitor.enabled=true").objects();
    let monitors = objects.of("ServiceMonitor");
    assert_eq!(monitors.len(), 1);
    for monitor in monitors {
        let selector = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let selected: Vec<_> = objects
            .of("Service")
            .into_iter()
            .filter(|s| selector.iter().all(|(key, value)| s["metadata"]["labels"][key] == *value))
            .collect();
        let services: Vec<_> = selected
            .iter()
            .flat_map(|service| service["spec"]["ports"].as_array().unwrap())
            .collect();
        for endpoint in monitor["spec"]["endpoints"].as_array().unwrap() {
            let port = services.iter().find(|port| port["name"] == endpoint["port"]);
            let port = port.unwrap_or_else(|| panic!("{endpoint} is no port of {selected:?}"));
            let pod = &objects.get("Deployment", "belay")["spec"]["template"]["spec"];
            let ports = pod["containers"][0]["ports"].as_array().unwrap();
            let target = ports.iter().find(|own| own["name"] == port["targetPort"]).unwrap();
            assert_eq!(target["containerPort"], port["port"]);
        }
    }
}

#[test]
fn metrics_are_open_only_to_the_named_clients() {
    let rules = |from: &str| {
        let api_server = "networkPolicy.apiServer={\"cidrs\":[\"10.0.0.1/32\"],\"ports\":[443]}";
        let render = Render::default().set("networkPolicy.enabled=true").set(api_server);
        let objects = render.set(&format!("networkPolicy.metricsFrom={from}")).objects();
        objects.get("NetworkPolicy", "belay")["spec"]["ingress"].clone()
    };
    let webhook = json!({
        "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
        "ports": [{"port": "webhook", "protocol": "TCP"}],
    });
    for nobody in ["[]", "null"] {
        assert_eq!(rules(nobody), json!([webhook]), "an empty `from` would be everybody");
    }
    let metrics = json!({
        "from": [{"podSelector": {}}],
        "ports": [{"port": "metrics", "protocol": "TCP"}],
    });
    assert_eq!(rules("[{\"podSelector\":{}}]"), json!([webhook, metrics]));
}

#[test]
fn reviews_are_admitted_from_the_places_that_are_named_and_from_no_other() {
    let admits = |values: &[&str]| {
        let render = values.iter().fold(Render::default(), |render, value| render.set(value));
        let objects = render.set("networkPolicy.enabled=true").objects();
        let ingress = objects.get("NetworkPolicy", "belay")["spec"]["ingress"].clone();
        let rules = ingress.as_array().unwrap().clone();
        let webhook = rules.iter().find(|rule| rule["ports"][0]["port"] == "webhook").unwrap();
        webhook["from"].clone()
    };
    let servers = "networkPolicy.apiServer.cidrs=[\"10.0.0.1/32\",\"10.0.0.2/32\"]";
    let blocks =
        json!([{"ipBlock": {"cidr": "10.0.0.1/32"}}, {"ipBlock": {"cidr": "10.0.0.2/32"}}]);
    assert_eq!(admits(&[servers]), blocks);
    let agents = "networkPolicy.webhookFrom=[{\"podSelector\":{}}]";
    assert_eq!(admits(&[agents]), json!([{"podSelector": {}}]));
    assert_eq!(admits(&[servers, agents]), json!([{"podSelector": {}}]));
}

#[test]
fn programs_that_check_holds_get_their_former_names() {
    let objects = Render::default().set(r#"formerHolds=["a.dev/x","b.dev/y"]"#).objects();
    for (kind, name) in [("Deployment", "belay"), ("Job", "belay-uninstall")] {
        let pod = &objects.get(kind, name)["spec"]["template"]["spec"];
        let arguments = strings(&pod["containers"][0]["args"]);
        for former in ["--former-hold=a.dev/x", "--former-hold=b.dev/y"] {
            assert!(arguments.contains(&former), "{kind} {name}: {arguments:?}");
        }
    }
    // The API server also connects while another replica ends.
    let mutating = &objects.of("MutatingWebhookConfiguration")[0]["webhooks"];
    let conditions = mutating.as_array().unwrap().iter().flat_map(|entry| {
        let conditions = entry["matchConditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["name"] == "hold-removed")
    });
    let conditions: Vec<&str> = conditions.filter_map(|c| c["expression"].as_str()).collect();
    assert!(!conditions.is_empty());
    for expression in conditions {
        for name in ["belay.dev/hold", "a.dev/x", "b.dev/y"] {
            for object in ["oldObject", "object"] {
                let test = format!("'{name}' in {object}.metadata.?finalizers");
                assert!(expression.contains(&test), "{expression}");
            }
        }
    }
}
