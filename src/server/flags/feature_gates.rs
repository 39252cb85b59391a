//! etcd's feature gates (`--feature-gates`): their list, the effect of each here, and whether it is
//! on. A gate has the class [`Class::Effect`] only if it changes the server's behaviour.

use std::collections::BTreeMap;

use super::table::Class::{self, Accepted, Effect};
use super::{Flags, parse_bool};

/// One gate.
#[derive(Clone, Copy, Debug)]
pub struct FeatureGate {
    /// etcd's name, or ours.
    pub name: &'static str,
    /// Whether etcd lists it as alpha, not as beta.
    pub alpha: bool,
    /// Whether it is on by default.
    pub default: bool,
    /// The effect of setting it.
    pub class: Class,
    /// One line for the help.
    pub help: &'static str,
}

const fn gate(name: &'static str, alpha: bool, class: Class, help: &'static str) -> FeatureGate {
    // etcd's rule: alpha is off, beta is on.
    let default = !alpha;
    FeatureGate {
        name,
        alpha,
        default,
        class,
        help,
    }
}

/// The gates of etcd 3.7, by name, and two of our own.
#[rustfmt::skip]
pub const GATES: &[FeatureGate] = &[
    gate("CompactHashCheck", true, Effect, "The leader compares the members' data after each compaction; see --compact-hash-check-time."),
    gate("FastLeaseKeepAlive", false, Accepted("a keepalive always waits for the leader to be confirmed"), "Answer keepalives without waiting for what is committed."),
    gate("InitialCorruptCheck", true, Effect, "A member that starts again compares its data with the others' before it serves clients."),
    gate("LeaseCheckpoint", true, Effect, "The leader notes what remains of long leases, so that a new leader does not give them their whole time again."),
    gate("LeaseCheckpointPersist", true, Accepted("what is noted of leases is always kept"), "Keep what was noted of leases."),
    gate("OwnHTTP2", false, Effect, "HTTP/2 at the client ports by this server's own code, which takes less processor time for a request. False: by the library that serves HTTP/1 as well."),
    gate("PriorityRequest", true, Accepted("no kind of request goes before another"), "Revoke leases before other requests."),
    gate("SetMemberLocalAddr", true, Accepted("the system chooses the address to dial from"), "Dial from the first advertised address."),
    gate("StopGRPCServiceOnDefrag", true, Accepted("defragmentation stops nothing here"), "Serve no clients during defragmentation."),
    gate("TxnModeWriteWithSharedBuffer", false, Accepted("transactions need no such mode"), "Share a buffer in write transactions."),
    gate("ValuesOnDisk", true, Effect, "Checkpoints move values of 64 bytes and more to files below the data directory, from which they are read; memory holds the keys, and the quota does not follow the memory limit. Not given, which is another setting than false: they are moved once every member is connected and none is of release 0.1.0, which cannot read them, and the quota follows the memory limit. False: they stay in memory."),
];

/// The gates, as the flag sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(BTreeMap<&'static str, Setting>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    on: bool,
    /// By its name or by its stage, not by default.
    given: bool,
}

impl Gates {
    /// Reads the flag.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), with the flag's name.
    pub fn of(flags: &Flags, warnings: &mut Vec<String>) -> Result<Gates, String> {
        let text = flags.text("feature-gates");
        Gates::parse(text, warnings).map_err(|why| format!("--feature-gates: {why}"))
    }

    /// Parses `name=true,name=false`; `AllAlpha` and `AllBeta` set the gates that are not named
    /// individually. Adds a warning for each gate set to a value that has no effect.
    ///
    /// # Errors
    /// A gate that does not exist, or a value that is no boolean, as text.
    pub fn parse(text: &str, warnings: &mut Vec<String>) -> Result<Gates, String> {
        let mut given = BTreeMap::new();
        let mut groups = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or_else(|| format!("missing bool value for {}: write {0}=true", part.trim()))?;
            let (name, value) = (name.trim(), value.trim());
            let on = parse_bool(value)
                .ok_or_else(|| format!("invalid value of {name}={value}: give true or false"))?;
            if matches!(name, "AllAlpha" | "AllBeta") {
                groups.insert(name == "AllAlpha", on);
                continue;
            }
            let gate = GATES.iter().find(|gate| gate.name == name).ok_or_else(|| {
                let names: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
                format!(
                    "unrecognized feature gate: {name}; there are {}",
                    names.join(", ")
                )
            })?;
            given.insert(gate.name, on);
        }
        let mut gates = BTreeMap::new();
        for gate in GATES {
            let named = given.get(gate.name).copied();
            let set = named.or(groups.get(&gate.alpha).copied());
            let on = set.unwrap_or(gate.default);
            if let (Accepted(why), true) = (gate.class, on != gate.default && named.is_some()) {
                let name = gate.name;
                warnings.push(format!(
                    "--feature-gates: {name}={on} is accepted without effect: {why}"
                ));
            }
            let given = set.is_some();
            gates.insert(gate.name, Setting { on, given });
        }
        Ok(Gates(gates))
    }

    /// Whether a gate is on.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|setting| setting.on)
    }

    /// What a gate was set to, by its name or its stage.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<bool> {
        let setting = self.0.get(name).filter(|setting| setting.given);
        setting.map(|setting| setting.on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(text: &str) -> Result<Vec<&'static str>, String> {
        let gates = Gates::parse(text, &mut Vec::new())?;
        let on = GATES.iter().filter(|gate| gates.is_on(gate.name));
        Ok(on.map(|gate| gate.name).collect())
    }

    #[test]
    fn gates_are_named_one_by_one_or_by_their_stage() {
        let beta = [
            "FastLeaseKeepAlive",
            "OwnHTTP2",
            "TxnModeWriteWithSharedBuffer",
        ];
        assert_eq!(on("").expect("valid"), beta);
        assert_eq!(on("AllBeta=false").expect("valid"), [""; 0]);
        let kubeadm = on("AllBeta=false,InitialCorruptCheck=true").expect("valid");
        assert_eq!(kubeadm, ["InitialCorruptCheck"]);
        let all = on("AllAlpha=true,LeaseCheckpoint=false").expect("valid");
        assert_eq!(all.len(), GATES.len() - 1);
        assert!(!all.contains(&"LeaseCheckpoint"));
    }

    #[test]
    fn default_is_told_from_what_was_given() {
        let given = |text| {
            let gates = Gates::parse(text, &mut Vec::new()).expect("valid");
            gates.given("ValuesOnDisk")
        };
        assert_eq!(given(""), None);
        assert_eq!(given("AllBeta=true"), None);
        assert_eq!(given("AllAlpha=false"), Some(false));
        assert_eq!(given("AllAlpha=false,ValuesOnDisk=true"), Some(true));
    }

    #[test]
    fn unknown_gates_get_etcds_error() {
        let refusal = |text| on(text).expect_err("refused");
        assert!(refusal("Foo=true").starts_with("unrecognized feature gate: Foo"));
        assert!(refusal("LeaseCheckpoint").starts_with("missing bool value for LeaseCheckpoint"));
        let value = refusal("LeaseCheckpoint=yes");
        assert!(
            value.starts_with("invalid value of LeaseCheckpoint=yes"),
            "{value}"
        );
    }

    #[test]
    fn gate_without_effect_warns() {
        let warned = |text| {
            let mut warnings = Vec::new();
            Gates::parse(text, &mut warnings).expect("valid");
            warnings.len()
        };
        assert_eq!(
            warned("SetMemberLocalAddr=true,InitialCorruptCheck=true"),
            1
        );
        assert_eq!(
            warned("FastLeaseKeepAlive=true,SetMemberLocalAddr=false"),
            0
        );
        assert_eq!(warned("FastLeaseKeepAlive=false"), 1);
    }
}
