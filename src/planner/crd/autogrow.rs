//! Growth of the members' volumes before they are full, on request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::quantity::bytes_of;
use super::schema;

/// Grown volumes have whole MiB.
const MIB: u64 = 1 << 20;

/// When volumes grow by themselves, and how far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autogrow {
    /// Percent of a volume that must be used before the volumes grow.
    #[serde(default = "default_at")]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self >= 50 && self <= 95", "storage.autogrow.at must be 50 to 95 (percent of a volume)")])))]
    pub at: i32,
    /// By how much they grow at a time: percent of their size, such as 20%, or a quantity, such as 2Gi.
    #[serde(default = "default_by")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("self.matches('^([1-9][0-9]?|100)%$') || isQuantity(self) && quantity(self).compareTo(quantity('1Mi')) >= 0", "storage.autogrow.by must be a percentage of 1% to 100%, or a quantity of at least 1Mi")])))]
    pub by: String,
    /// Size that no volume grows beyond, such as 64Gi.
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-validations" = schema::rules(&[("isQuantity(self)", "storage.autogrow.max must be a quantity such as 64Gi")])))]
    pub max: String,
}

fn default_at() -> i32 {
    80
}

fn default_by() -> String {
    "20%".to_owned()
}

/// The same in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Percent of a volume.
    pub at: u64,
    /// One step.
    by: By,
    /// Bytes of the largest volume.
    pub max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Percent(u64),
    Bytes(u64),
}

impl Autogrow {
    /// The settings in numbers.
    ///
    /// # Errors
    /// The field that is no number, and why.
    pub fn growth(&self) -> Result<Growth, String> {
        let wrong = |field: &str, why: String| format!("spec.storage.autogrow.{field}: {why}");
        let by = match self.by.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse::<u64>();
                By::Percent(percent.map_err(|error| wrong("by", error.to_string()))?)
            }
            None => {
                let bytes = bytes_of(&self.by);
                By::Bytes(bytes.map_err(|error| wrong("by", error.to_string()))?)
            }
        };
        let max = bytes_of(&self.max).map_err(|error| wrong("max", error.to_string()))?;
        let at = u64::try_from(self.at).map_err(|error| wrong("at", error.to_string()))?;
        Ok(Growth { at, by, max })
    }
}

impl Growth {
    /// The size that follows this one: itself at the end.
    #[must_use]
    pub fn next(&self, bytes: u64) -> u64 {
        let more = match self.by {
            By::Percent(percent) => bytes / 100 * percent,
            By::Bytes(more) => more,
        };
        let larger = bytes.saturating_add(more.max(1)).div_ceil(MIB);
        larger.saturating_mul(MIB).min(self.max).max(bytes)
    }

    /// Whether a volume of this size with so many free bytes is to grow.
    #[must_use]
    pub fn is_due(&self, bytes: u64, free: u64) -> bool {
        let used = bytes.saturating_sub(free);
        u128::from(used) * 100 > u128::from(bytes) * u128::from(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_at_the_maximum() {
        let growth = |by: &str| {
            let settings = Autogrow {
                at: default_at(),
                by: by.into(),
                max: "4Gi".into(),
            };
            settings.growth().expect("numbers")
        };
        let gib = 1 << 30;
        assert_eq!(growth("50%").next(2 * gib), 3 * gib);
        assert_eq!(growth("1Gi").next(2 * gib), 3 * gib);
        assert_eq!(growth("50%").next(3 * gib), 4 * gib);
        assert_eq!(growth("50%").next(4 * gib), 4 * gib);
        assert_eq!(growth("50%").next(5 * gib), 5 * gib, "grown by hand");
        let odd = growth("1%").next(gib);
        assert!(odd > gib && odd.is_multiple_of(MIB), "{odd}");
        let of = |free| growth("1%").is_due(gib, free);
        assert!(of(gib / 10) && !of(gib / 4) && !of(5 * gib));
    }
}
