//! The arguments of a Job's container, as `quorate backup` reads them. What is not there is not known.

use std::collections::BTreeMap;

/// Arguments by their name, and the one without.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) command: String,
    named: BTreeMap<String, String>,
    last: String,
}

impl Arguments {
    pub(crate) fn read(all: &[String]) -> Self {
        let (named, plain): (Vec<&String>, Vec<&String>) =
            all.iter().partition(|argument| argument.starts_with("--"));
        let named = named.into_iter().map(|argument| {
            let argument = argument.trim_start_matches("--");
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            (name.to_owned(), value.to_owned())
        });
        let command: Vec<&str> = plain.iter().take(2).map(|word| word.as_str()).collect();
        Self {
            command: command.join(" "),
            named: named.collect(),
            last: plain.get(2).map_or(String::new(), |word| (*word).clone()),
        }
    }

    /// Empty where it is absent.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.named.get(name).map_or("", String::as_str)
    }

    /// The argument without a name; empty where it is absent.
    pub(crate) fn last(&self) -> &str {
        &self.last
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        // Some are with their unit.
        self.get(name).trim_end_matches('s').parse().unwrap_or(0)
    }

    /// The folder in the store.
    pub(crate) fn folder(&self) -> String {
        match self.get("prefix") {
            "" => self.get("to").to_owned(),
            prefix => format!("{}/{prefix}", self.get("to")),
        }
    }

    /// The host of an address.
    pub(crate) fn host(&self, name: &str) -> &str {
        let address = self.get(name);
        address.rsplit_once(':').map_or(address, |(host, _)| host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_by_their_names() {
        let all = [
            "backup",
            "restore",
            "--to=s3://b",
            "--member=demo-1.demo:2380",
            "default/demo/one",
        ];
        let read = Arguments::read(&all.map(str::to_owned));
        assert_eq!(
            (read.command.as_str(), read.last()),
            ("backup restore", "default/demo/one")
        );
        assert_eq!(
            (read.host("member"), read.folder().as_str()),
            ("demo-1.demo", "s3://b")
        );
    }
}
