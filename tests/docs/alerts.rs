//! Checks the alerts of `deploy/monitoring` against the pages: each has its page, is listed where users look for it, and is
//! tested; and rules, pages and dashboards use only metrics that there are. What fires when is promtool's to say.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::root;

const RULES: &str = "deploy/monitoring/rules.yaml";
const TESTS: &str = "deploy/monitoring/rules-test.yaml";

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// Every rule of a file of rules.
fn rules() -> Vec<Value> {
    let rules: Value = serde_saphyr::from_str(&read(RULES)).expect("YAML");
    let groups = rules["groups"].as_array().into_iter().flatten();
    let of = |group: &Value| group["rules"].as_array().cloned().unwrap_or_default();
    groups.flat_map(of).collect()
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> Vec<&str> {
    let part = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !part(c));
    let starts = ["quorate_", "etcd_", "grpc_server_", "process_"];
    words
        .filter(|word| starts.iter().any(|start| word.starts_with(start)))
        .collect()
}

/// The names of metrics in a text that the pages do not have.
fn unknown(text: &str, page: &str) -> BTreeSet<String> {
    let ours = metrics_in(text);
    let base = |word: &str| {
        let ends = ["_bucket", "_count", "_sum"];
        let base = ends.iter().find_map(|end| word.strip_suffix(end));
        base.unwrap_or(word).to_owned()
    };
    let unknown = ours.into_iter().map(base);
    unknown
        .filter(|name| !page.contains(&format!("| `{name}` |")))
        .collect()
}

#[test]
fn every_alert_has_its_page_and_its_test() {
    let (monitor, index) = (read("docs/tasks/monitor.md"), read("docs/README.md"));
    let tests: Value = serde_saphyr::from_str(&read(TESTS)).expect("YAML");
    let tested = tests["tests"].as_array().into_iter().flatten();
    let tested = tested.flat_map(|test| test["alert_rule_test"].as_array().cloned());
    let (mut fires, mut quiet) = (BTreeSet::new(), BTreeSet::new());
    for case in tested.flatten() {
        let name = case["alertname"].as_str().expect("a name").to_owned();
        match case["exp_alerts"].as_array().map_or(0, Vec::len) {
            0 => quiet.insert(name),
            _ => fires.insert(name),
        };
    }
    let mut names = BTreeSet::new();
    for rule in rules() {
        let name = rule["alert"].as_str().expect("an alert").to_owned();
        let page = format!("docs/runbooks/{name}.md");
        assert_eq!(rule["annotations"]["runbook"], page.as_str(), "{name}");
        for annotation in ["summary", "description"] {
            let text = rule["annotations"][annotation].as_str().unwrap_or_default();
            assert!(text.ends_with('.'), "{name}: {annotation}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}"
        );
        let row = format!("| [{name}](../runbooks/{name}.md) | {severity} |");
        assert!(monitor.contains(&row), "docs/tasks/monitor.md lacks {row}");
        assert!(index.contains(&format!("(runbooks/{name}.md)")), "{name}");
        let text = read(&page);
        for head in [
            format!("# {name}\n"),
            "\n## Look\n".into(),
            "\n## Do\n".into(),
        ] {
            assert!(text.contains(&head), "{page} lacks {head}");
        }
        assert!(names.insert(name), "{page} twice");
    }
    assert!(names.len() > 10, "{names:?}");
    assert_eq!(fires, names, "rules-test.yaml has no case that fires");
    assert!(names.is_subset(&quiet), "rules-test.yaml has no quiet case");
    let pages = fs::read_dir(root().join("docs/runbooks")).expect("the pages");
    let pages = pages.map(|page| page.expect("a page").path());
    let stems = pages.filter_map(|page| Some(page.file_stem()?.to_str()?.to_owned()));
    let stems: BTreeSet<String> = stems.collect();
    assert_eq!(stems, names, "a page without its alert");
}

#[test]
fn alerts_ask_for_metrics_that_exist() {
    let page = read("docs/operator-metrics.md") + &read("docs/server-metrics.md");
    let mut texts = read(RULES) + &read(TESTS);
    for rule in rules() {
        texts += &read(rule["annotations"]["runbook"].as_str().expect("a page"));
    }
    assert_eq!(unknown(&texts, &page), BTreeSet::new());
    let wrong = "rate(quorate_reconcile_duration_seconds_bucket[5m]) and quorate_no_such_total > 0";
    let found = unknown(wrong, &page);
    assert_eq!(found, BTreeSet::from(["quorate_no_such_total".to_owned()]));
}

/// Of the dashboards too, with those that have etcd's names.
#[test]
fn dashboards_ask_for_metrics_that_exist() {
    let page = read("docs/operator-metrics.md") + &read("docs/server-metrics.md");
    let mut panels = 0;
    for name in ["clusters", "members"] {
        let dashboard = read(&format!("deploy/monitoring/dashboards/{name}.json"));
        let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
        for panel in dashboard["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().expect("targets") {
                let query = target["expr"].as_str().expect("a query");
                assert_eq!(unknown(query, &page), BTreeSet::new(), "{query}");
                assert!(!metrics_in(query).is_empty(), "{query}");
            }
            panels += 1;
        }
    }
    assert!(panels > 20, "{panels}");
}
