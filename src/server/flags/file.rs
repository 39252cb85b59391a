//! `--config-file`: etcd's YAML (or JSON) configuration file, as settings of the flag table.
//!
//! Keys are flags without their dashes. As in etcd, durations are whole nanoseconds, lists stay
//! lists, and certificates have two sections of their own. Unlike etcd, an unknown key is refused,
//! so that a mistyped one is not silently ignored. Never reads the file itself.

use serde_json::{Map, Value};

use super::table::{self, Kind};
use super::{FlagError, Flags, Setting};

/// Keys of a section and their flags; an empty flag: nothing to set.
type Section = (&'static str, &'static [(&'static str, &'static str)]);

const SECTIONS: &[Section] = &[
    (
        "client-transport-security",
        &[
            ("cert-file", "cert-file"),
            ("key-file", "key-file"),
            ("client-cert-file", "client-cert-file"),
            ("client-key-file", "client-key-file"),
            ("client-cert-auth", "client-cert-auth"),
            ("trusted-ca-file", "trusted-ca-file"),
            ("auto-tls", "auto-tls"),
            ("allowed-cn", "client-cert-allowed-cn"),
            ("allowed-hostname", "client-cert-allowed-hostname"),
            // It has no effect on this port in etcd either.
            ("skip-client-san-verification", ""),
        ],
    ),
    (
        "peer-transport-security",
        &[
            ("cert-file", "peer-cert-file"),
            ("key-file", "peer-key-file"),
            ("client-cert-file", "peer-client-cert-file"),
            ("client-key-file", "peer-client-key-file"),
            ("client-cert-auth", "peer-client-cert-auth"),
            ("trusted-ca-file", "peer-trusted-ca-file"),
            ("auto-tls", "peer-auto-tls"),
            ("allowed-cn", "peer-cert-allowed-cn"),
            ("allowed-hostname", "peer-cert-allowed-hostname"),
            (
                "skip-client-san-verification",
                "peer-skip-client-san-verification",
            ),
        ],
    ),
    (
        "socket-options",
        &[
            ("reuse-port", "socket-reuse-port"),
            ("reuse-address", "socket-reuse-address"),
        ],
    ),
];

/// Why a file is refused. Each text names the file, and the key if there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It does not exist, or is not readable.
    #[error("--config-file: cannot read {path}: {reason}; give a file that this user may read")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system.
        reason: String,
    },
    /// It is no YAML, or no mapping.
    #[error("--config-file: {path} is not a YAML mapping of settings: {reason}")]
    Yaml {
        /// The file.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// An unknown key.
    #[error("--config-file: {path}: the key {key} is not known{hint}")]
    Unknown {
        /// The file.
        path: String,
        /// With its section.
        key: String,
        /// The key that was probably meant.
        hint: String,
    },
    /// A value of the wrong shape.
    #[error("--config-file: {path}: {key} must be {expected}")]
    Value {
        /// The file.
        path: String,
        /// With its section.
        key: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// A value that the flag with that name refuses as well.
    #[error("--config-file: {path}: {source}")]
    Flag {
        /// The file.
        path: String,
        /// The flag's error.
        #[source]
        source: FlagError,
    },
}

/// Reads the text of a file.
pub fn parse(path: &str, text: &str) -> Result<Flags, FileError> {
    let wrong = |reason: String| FileError::Yaml {
        path: path.to_owned(),
        reason,
    };
    // An empty file sets nothing, as in etcd.
    let value: Option<Value> =
        serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let map = match value {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(wrong("its top level holds no keys".to_owned())),
    };
    let mut reader = Reader {
        path,
        settings: Vec::new(),
    };
    for (key, value) in &map {
        reader.key(key, value)?;
    }
    Flags::from_settings(reader.settings).map_err(|source| FileError::Flag {
        path: path.to_owned(),
        source,
    })
}

struct Reader<'a> {
    path: &'a str,
    settings: Vec<Setting>,
}

impl Reader<'_> {
    fn key(&mut self, key: &str, value: &Value) -> Result<(), FileError> {
        let Some((_, keys)) = SECTIONS.iter().find(|(section, _)| *section == key) else {
            return match lives_in(key) {
                Some(section) => Err(self.unknown(key, format!("; it belongs into {section}"))),
                None => self.setting(key, key, value),
            };
        };
        let map = match value {
            Value::Null => return Ok(()),
            Value::Object(map) => map,
            _ => return Err(self.value(key, "a mapping of settings")),
        };
        for (inner, value) in map {
            let shown = format!("{key}.{inner}");
            match keys.iter().find(|(known, _)| known == inner) {
                Some((_, "")) => {}
                Some((_, flag)) => self.setting(&shown, flag, value)?,
                None => {
                    let known: Vec<&str> = keys.iter().map(|(known, _)| *known).collect();
                    return Err(self.unknown(&shown, format!("; known: {}", known.join(", "))));
                }
            }
        }
        Ok(())
    }

    fn setting(&mut self, shown: &str, name: &str, value: &Value) -> Result<(), FileError> {
        let known =
            table::find(name).filter(|flag| !matches!(flag.name, "version" | "config-file"));
        let Some(flag) = known else {
            let hint = table::nearest(name)
                .map_or_else(String::new, |name| format!(" (did you mean {name}?)"));
            return Err(self.unknown(shown, hint));
        };
        let value = match (flag.kind, value) {
            // etcd keeps its default as well.
            (_, Value::Null) => return Ok(()),
            (Kind::Duration, Value::Number(number)) => match number.as_i64() {
                Some(nanoseconds) => format!("{nanoseconds}ns"),
                None => return Err(self.value(shown, "a whole number of nanoseconds")),
            },
            (Kind::Duration, _) => {
                return Err(self.value(
                    shown,
                    "a whole number of nanoseconds, such as 600000000000 for 10m",
                ));
            }
            (Kind::Number | Kind::Signed, Value::Number(number)) => number.to_string(),
            (Kind::Number | Kind::Signed, _) => return Err(self.value(shown, "a whole number")),
            (Kind::Bool, Value::Bool(value)) => value.to_string(),
            (Kind::Bool, _) => return Err(self.value(shown, "true or false")),
            (Kind::Text | Kind::Choice(_), Value::String(text)) => text.clone(),
            (Kind::Text | Kind::Choice(_), Value::Number(number)) => number.to_string(),
            (Kind::Text | Kind::Choice(_), Value::Bool(value)) => value.to_string(),
            (Kind::Text, Value::Array(values)) => self.list(shown, values)?,
            (Kind::Text | Kind::Choice(_), _) => return Err(self.value(shown, "a text")),
        };
        // Empty means "not given" in etcd, whatever the flag's default.
        if !value.is_empty() {
            self.settings.push(Setting {
                flag,
                value,
                origin: shown.to_owned(),
            });
        }
        Ok(())
    }

    fn list(&self, shown: &str, values: &[Value]) -> Result<String, FileError> {
        let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
        texts
            .map(|texts| texts.join(","))
            .ok_or_else(|| self.value(shown, "a list of texts"))
    }

    fn unknown(&self, key: &str, hint: String) -> FileError {
        FileError::Unknown {
            path: self.path.to_owned(),
            key: key.to_owned(),
            hint,
        }
    }

    fn value(&self, key: &str, expected: &'static str) -> FileError {
        FileError::Value {
            path: self.path.to_owned(),
            key: key.to_owned(),
            expected,
        }
    }
}

/// The section of a flag that etcd does not read at the top level of a file.
fn lives_in(key: &str) -> Option<String> {
    SECTIONS.iter().find_map(|(section, keys)| {
        let (inner, _) = keys.iter().find(|(_, flag)| *flag == key)?;
        Some(format!("{section} as {inner}"))
    })
}

#[cfg(test)]
#[path = "file_test.rs"]
mod tests;
