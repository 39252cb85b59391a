//! Metrics of what is the state at the moment of a scrape: alarms, the revision of users and roles, gates, the peers that the
//! membership has, and the queues of the core threads.

use crate::server::etcd::{Services, alarms_of};
use crate::server::flags::feature_gates::{GATES, Gates};
use crate::server::flags::table::Class;
use crate::server::metrics::Text;

/// Writes them all.
pub(super) fn write(text: &mut Text, services: &Services) {
    let member = services.member();
    let latest = member.latest();
    let alarms = alarms_of(&latest.overview).into_iter();
    write_alarms(
        text,
        alarms.map(|it| (it.member_id, it.alarm().as_str_name())),
    );
    text.single(
        "etcd_debugging_auth_revision",
        "gauge",
        "Revision of users, roles and their permissions.",
        latest.overview.auth().revision(),
    );
    write_gates(text, services.gates());
    let known = latest.membership.members.keys().copied();
    let peers = &member.metrics().peers;
    peers.write(text, member.status().member_id, known);
    write_queues(text, &member.depths());
}

/// Those that are raised; of others there are no samples.
fn write_alarms(text: &mut Text, alarms: impl Iterator<Item = (u64, &'static str)>) {
    let name = "etcd_debugging_server_alarms";
    let help = "Alarms that are raised, by the member for which.";
    text.head(name, "gauge", help);
    for (member, alarm) in alarms {
        let labels = format!("alarm_type=\"{alarm}\",server_id=\"{member:x}\"");
        text.sample(name, &labels, 1);
    }
}

/// Gates that are without effect here would be shown as something that they are not, and so would one that was left open.
fn write_gates(text: &mut Text, gates: &Gates) {
    let name = "etcd_server_feature_enabled";
    let help = "Whether a feature gate is on; of those that have an effect here.";
    text.head(name, "gauge", help);
    for gate in GATES {
        let decided = gate.name != "ValuesOnDisk" || gates.given(gate.name).is_some();
        if gate.class == Class::Effect && decided {
            let stage = if gate.alpha { "ALPHA" } else { "BETA" };
            let labels = format!("name=\"{}\",stage=\"{stage}\"", gate.name);
            text.sample(name, &labels, u8::from(gates.is_on(gate.name)));
        }
    }
}

fn write_queues(text: &mut Text, depths: &[(&'static str, (usize, usize))]) {
    let name = "quorate_server_queue_items";
    text.head(name, "gauge", "What waits for a thread, by its name.");
    for (thread, (items, _)) in depths {
        text.sample(name, &format!("thread=\"{thread}\""), items);
    }
    let name = "quorate_server_queue_bytes";
    text.head(name, "gauge", "The same in bytes.");
    for (thread, (_, bytes)) in depths {
        text.sample(name, &format!("thread=\"{thread}\""), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(write: impl FnOnce(&mut Text)) -> Vec<String> {
        let mut text = Text::default();
        write(&mut text);
        let text = text.finish();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(str::to_owned).collect()
    }

    #[test]
    fn alarms_are_told_while_they_are_raised() {
        let raised = [(0xa, "NOSPACE")].into_iter();
        let wanted = r#"etcd_debugging_server_alarms{alarm_type="NOSPACE",server_id="a"} 1"#;
        assert_eq!(samples(|text| write_alarms(text, raised)), [wanted]);
        assert!(samples(|text| write_alarms(text, [].into_iter())).is_empty());
    }

    /// A gate without effect was shown as on, though nothing was done because of it.
    #[test]
    fn gates_are_told_that_do_something() {
        let told = |given| {
            let gates = Gates::parse(given, &mut Vec::new()).expect("valid");
            samples(|text| write_gates(text, &gates))
        };
        let sample = |name, stage, on| {
            format!("etcd_server_feature_enabled{{name=\"{name}\",stage=\"{stage}\"}} {on}")
        };
        let default = told("");
        assert!(default.contains(&sample("LeaseCheckpoint", "ALPHA", 0)));
        assert!(default.contains(&sample("OwnHTTP2", "BETA", 1)));
        assert!(!default.iter().any(|line| line.contains("PriorityRequest")));
        assert!(!default.iter().any(|line| line.contains("ValuesOnDisk")));
        let given = told("LeaseCheckpoint=true,ValuesOnDisk=false");
        assert!(given.contains(&sample("LeaseCheckpoint", "ALPHA", 1)));
        assert!(given.contains(&sample("ValuesOnDisk", "ALPHA", 0)));
    }

    #[test]
    fn queues_are_told_by_thread() {
        let wanted = [
            r#"quorate_server_queue_items{thread="log"} 2"#,
            r#"quorate_server_queue_bytes{thread="log"} 128"#,
        ];
        let written = samples(|text| write_queues(text, &[("log", (2, 128))]));
        assert_eq!(written, wanted);
    }
}
