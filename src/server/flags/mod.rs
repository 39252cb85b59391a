//! Go's flag syntax and etcd's rules about the environment.
//!
//! One dash or two, `=` or a space before the value, booleans bare or with `=`. A setting given
//! both as a flag and in the environment is an error; unknown `ETCD_` variables only cause a
//! warning. Never validates a value beyond its kind: `config` does.

pub mod collector_headers;
pub mod config;
pub mod feature_gates;
pub mod file;
pub(in crate::server) mod from_flags;
pub mod log;
mod maintenance;
pub mod table;
pub mod tracing;
pub mod url;

use std::collections::BTreeMap;
use std::time::Duration;

use self::table::{Class, Flag, Kind};

/// The given settings, checked against the table.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    given: BTreeMap<&'static str, String>,
    /// Warnings for the user, logged once a log exists.
    pub warnings: Vec<String>,
    /// `--help` was given.
    pub help: bool,
    /// The settings come from `--config-file`.
    pub from_file: bool,
}

/// One setting: a flag, its value and its origin.
#[derive(Clone, Debug)]
pub(in crate::server) struct Setting {
    /// The flag.
    pub(in crate::server) flag: &'static Flag,
    /// The value in the flag's syntax.
    pub(in crate::server) value: String,
    /// Its origin, for messages: `flag --name`.
    pub(in crate::server) origin: String,
}

impl Setting {
    fn check(&self) -> Result<(), FlagError> {
        check(self.flag.kind, &self.value).map_err(|expected| FlagError::Value {
            origin: self.origin.clone(),
            value: self.value.clone(),
            expected,
        })
    }
}

/// Why the arguments are refused. Each text names the flag and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// No flag of that name.
    #[error("flag --{name} is not known{}; see 'quorate server --help'", hint(.nearest))]
    Unknown {
        /// As it was given.
        name: String,
        /// The most similar known name.
        nearest: Option<&'static str>,
    },
    /// An argument that is no flag.
    #[error("{0:?} is not a flag: flags begin with '--', and the server takes no other arguments")]
    Stray(String),
    /// The last argument needs a value.
    #[error("flag --{0} needs a value: --{0}=VALUE")]
    NoValue(&'static str),
    /// The value is not of the flag's kind.
    #[error("{origin} has the value {value:?}: {expected}")]
    Value {
        /// The flag or the variable.
        origin: String,
        /// As it was given.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// The same setting in two places.
    #[error(
        "environment variable {variable} and flag --{name} are both set: unset the variable or leave the flag out"
    )]
    Twice {
        /// The variable.
        variable: String,
        /// The flag.
        name: &'static str,
    },
    /// A flag that this server does not support.
    #[error("{origin} is not supported: {instead}")]
    Refused {
        /// The flag or the variable.
        origin: String,
        /// What to do instead.
        instead: &'static str,
    },
}

/// One argument, and the next one if that is its value.
fn argument_setting<'a>(
    argument: &str,
    text: &str,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<Setting, FlagError> {
    if text.is_empty() || text.starts_with(['-', '=']) {
        return Err(FlagError::Stray(argument.to_owned()));
    }
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let flag = table::find(name).ok_or_else(|| FlagError::Unknown {
        name: name.to_owned(),
        nearest: table::nearest(name),
    })?;
    let value = match (value, flag.kind) {
        (Some(value), _) => value,
        (None, Kind::Bool) => "true".to_owned(),
        (None, _) => rest.next().ok_or(FlagError::NoValue(flag.name))?.clone(),
    };
    let setting = Setting {
        flag,
        value,
        origin: format!("flag --{}", flag.name),
    };
    setting.check()?;
    Ok(setting)
}

/// The configuration file to read instead, if one is given.
fn config_file(settings: &[Setting], environment: &BTreeMap<String, String>) -> Option<Setting> {
    let flag = table::find("config-file")?;
    let given = settings
        .iter()
        .rfind(|setting| setting.flag.name == flag.name);
    let setting = match given {
        Some(setting) => setting.clone(),
        None => Setting {
            flag,
            value: environment.get(&variable_of(flag.name))?.clone(),
            origin: format!("environment variable {}", variable_of(flag.name)),
        },
    };
    (!setting.value.is_empty()).then_some(setting)
}

fn hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean --{name}?)"))
}

impl Flags {
    /// Parses arguments (without the program's name) and the environment.
    ///
    /// If `--config-file` is among them, all others but `--version` are ignored, as in etcd: the
    /// caller reads that file and passes its text to [`Flags::from_file`].
    pub fn parse(
        arguments: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Result<Flags, FlagError> {
        let mut flags = Flags::default();
        let mut settings = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(text) = argument
                .strip_prefix("--")
                .or_else(|| argument.strip_prefix('-'))
            else {
                return Err(FlagError::Stray(argument.clone()));
            };
            if matches!(text, "h" | "help") {
                flags.help = true;
                return Ok(flags);
            }
            settings.push(argument_setting(argument, text, &mut rest)?);
        }
        if let Some(file) = config_file(&settings, environment) {
            settings.retain(|setting| matches!(setting.flag.name, "config-file" | "version"));
            if settings
                .iter()
                .all(|setting| setting.flag.name == "version")
            {
                settings.push(file);
            }
        } else {
            flags.take_environment(environment, &mut settings)?;
        }
        for setting in settings {
            flags.take(setting)?;
        }
        Ok(flags)
    }

    /// The settings of a `--config-file`.
    pub(in crate::server) fn from_settings(settings: Vec<Setting>) -> Result<Flags, FlagError> {
        let mut flags = Flags {
            from_file: true,
            ..Flags::default()
        };
        for setting in settings {
            setting.check()?;
            flags.take(setting)?;
        }
        Ok(flags)
    }

    fn take_environment(
        &mut self,
        environment: &BTreeMap<String, String>,
        settings: &mut Vec<Setting>,
    ) -> Result<(), FlagError> {
        let given = settings.len();
        for (variable, value) in environment {
            let Some(upper) = variable.strip_prefix("ETCD_") else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            let name = upper.to_ascii_lowercase().replace('_', "-");
            let known = table::find(&name)
                .filter(|flag| flag.name != "version" && variable_of(flag.name) == *variable);
            let Some(flag) = known else {
                self.warnings.push(format!(
                    "environment variable {variable} is no setting of this server; it is ignored"
                ));
                continue;
            };
            if settings[..given]
                .iter()
                .any(|other| other.flag.name == flag.name)
            {
                return Err(FlagError::Twice {
                    variable: variable.clone(),
                    name: flag.name,
                });
            }
            let setting = Setting {
                flag,
                value: value.clone(),
                origin: format!("environment variable {variable}"),
            };
            setting.check()?;
            settings.push(setting);
        }
        Ok(())
    }

    fn take(&mut self, setting: Setting) -> Result<(), FlagError> {
        let Setting {
            flag,
            value,
            origin,
        } = setting;
        let asks = !same(flag.kind, &value, flag.default);
        match flag.class {
            Class::Accepted(why) if asks => {
                self.warnings
                    .push(format!("{origin} is accepted without effect: {why}"));
            }
            Class::Refused(instead) if asks => return Err(FlagError::Refused { origin, instead }),
            _ => {}
        }
        self.given.insert(flag.name, value);
        Ok(())
    }

    /// Whether the flag was given, with any value.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The value given, or the default.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.given.get(name) {
            Some(value) => value,
            None => table::find(name).map_or("", |flag| flag.default),
        }
    }

    /// The value, or `None` if it is empty.
    #[must_use]
    pub fn optional(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// The comma-separated parts, without blanks and empty ones.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<&str> {
        self.text(name)
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect()
    }

    /// A boolean.
    #[must_use]
    pub fn bool(&self, name: &str) -> bool {
        parse_bool(self.text(name)).unwrap_or(false)
    }

    /// A whole number from 0.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// A whole number.
    #[must_use]
    pub fn signed(&self, name: &str) -> i64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// A duration; `None` if it is 0 or negative, as Go allows.
    #[must_use]
    pub fn duration(&self, name: &str) -> Option<Duration> {
        parse_duration(self.text(name)).filter(|duration| !duration.is_zero())
    }

    /// A duration that is less than 0.
    #[must_use]
    pub fn is_negative(&self, name: &str) -> bool {
        parse_nanoseconds(self.text(name)).is_some_and(|nanoseconds| nanoseconds < 0)
    }
}

/// The environment variable of a flag: ETCD_ and its name in capitals.
#[must_use]
pub fn variable_of(name: &str) -> String {
    format!("ETCD_{}", name.to_ascii_uppercase().replace('-', "_"))
}

fn check(kind: Kind, value: &str) -> Result<(), String> {
    let fits = match kind {
        Kind::Text => true,
        Kind::Bool => parse_bool(value).is_some(),
        Kind::Number => value.parse::<u64>().is_ok(),
        Kind::Signed => value.parse::<i64>().is_ok(),
        Kind::Duration => parse_nanoseconds(value).is_some(),
        Kind::Choice(choices) => choices.contains(&value),
    };
    if fits {
        return Ok(());
    }
    Err(match kind {
        Kind::Text => String::new(),
        Kind::Bool => "give true or false".to_owned(),
        Kind::Number => "give a whole number from 0".to_owned(),
        Kind::Signed => "give a whole number".to_owned(),
        Kind::Duration => {
            "give a duration with its unit, such as 100ms, 30s or 1h30m, up to 292 years".to_owned()
        }
        Kind::Choice(choices) => {
            let choices: Vec<String> = choices
                .iter()
                .filter(|choice| !choice.is_empty())
                .map(|choice| format!("{choice:?}"))
                .collect();
            format!("give {}", choices.join(" or "))
        }
    })
}

/// Whether two values are equivalent.
fn same(kind: Kind, left: &str, right: &str) -> bool {
    match kind {
        Kind::Bool => parse_bool(left) == parse_bool(right),
        Kind::Duration => parse_nanoseconds(left) == parse_nanoseconds(right),
        _ => left == right,
    }
}

/// Go's spellings of a boolean.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses Go's durations that are not negative.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let nanoseconds = u64::try_from(parse_nanoseconds(text)?).ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// Parses Go's durations, in nanoseconds: a sign, numbers with units, or `0` alone. `None` for what
/// is longer than 292 years.
pub(crate) fn parse_nanoseconds(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if unsigned == "0" {
        return Some(0);
    }
    let (mut rest, mut total) = (unsigned, 0_u64);
    loop {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(number);
        let end = behind.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, next) = behind.split_at(end.unwrap_or(behind.len()));
        total = total.checked_add(nanoseconds(number, unit)?)?;
        rest = next;
        if rest.is_empty() {
            break;
        }
    }
    match (negative, i64::try_from(total)) {
        (false, total) => total.ok(),
        (true, Ok(total)) => Some(-total),
        (true, Err(_)) => (total == i64::MIN.unsigned_abs()).then_some(i64::MIN),
    }
}

/// One number with its unit.
fn nanoseconds(number: &str, unit: &str) -> Option<u64> {
    let unit: u64 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(fraction) {
        return None;
    }
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    // More digits than any unit has nanoseconds for.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = fraction.parse::<u128>().unwrap_or(0) * u128::from(unit) / scale;
    whole
        .checked_mul(unit)?
        .checked_add(u64::try_from(fraction).ok()?)
}

#[cfg(test)]
#[path = "flags_test.rs"]
mod tests;
