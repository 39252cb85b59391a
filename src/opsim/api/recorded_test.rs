//! The simulated API server beside a real one: what kube-apiserver 1.34.4 answered to applied
//! objects of the operator and to changes of them, recorded by `tests/opsim/record.py`.

use serde_json::Value;

use super::*;

const RECORDED: &str = include_str!("../../../tests/opsim/applied.json");

/// Without what differs from run to run.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        object::take(&mut object, &["metadata", field]);
    }
    if object["kind"] == "Service" {
        let address = object::at(&object, &["spec", "clusterIP"]).cloned();
        if address.is_some_and(|address| address != "None") {
            object["spec"]["clusterIP"] = "10.96.0.1".into();
            object["spec"]["clusterIPs"] = vec!["10.96.0.1"].into();
        }
        let spec = &mut object["spec"];
        for port in object::items_mut(spec, "ports") {
            if port.get("nodePort").is_some() {
                port["nodePort"] = 30_000.into();
            }
        }
    }
    object
}

/// Where two values differ, as paths with both.
fn differences(path: &str, ours: &Value, real: &Value, found: &mut Vec<String>) {
    match (ours, real) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (ours, real) = (&ours[key], &real[key]);
                differences(&format!("{path}.{key}"), ours, real, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (ours, real)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{at}]"), ours, real, found);
            }
        }
        _ if ours == real => {}
        _ => found.push(format!("{path}: ours {ours}, real {real}")),
    }
}

#[test]
fn answers_are_those_of_a_real_server() {
    let recorded: Value = serde_json::from_str(RECORDED).expect("a record");
    let value = |step: &Value, field: &str| {
        let at = step[field].as_u64().and_then(|at| usize::try_from(at).ok());
        recorded["values"][at.expect("a number")].clone()
    };
    let mut server = ApiServer::new(1, 1_700_000_000_000);
    let mut found = Vec::new();
    for step in recorded["steps"].as_array().expect("steps") {
        let name = step["step"].as_str().expect("a name");
        let (body, real) = (value(step, "body"), value(step, "answer"));
        let kind = Kind::of(
            object::text(&body, &["apiVersion"]),
            object::text(&body, &["kind"]),
        );
        let named = object::name(&body).to_owned();
        let force = step["force"] == true;
        let manager = step["manager"].as_str().expect("a manager");
        let patch = Patch::Apply { body, force };
        let ours = server.patch(manager, kind.expect("a kind"), ("prod", &named), patch);
        match ours {
            Ok(ours) if real.get("kind").is_some() => {
                differences(name, &plain(&ours), &real, &mut found);
            }
            Ok(_) => found.push(format!("{name}: ours accepted, real {real}")),
            Err(ours) if real["code"] == ours.code => {}
            Err(ours) => found.push(format!("{name}: ours {ours}, real {}", step["code"])),
        }
    }
    assert!(
        found.is_empty(),
        "{} differences:\n{}",
        found.len(),
        found.join("\n")
    );
    assert!(server.not_modelled().is_empty());
}
