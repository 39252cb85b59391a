//! Kubernetes quantities: written as a string or a number, compared in bytes.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

/// A quantity as the user wrote it, such as `500m` or `2Gi`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Quantity(pub String);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a quantity; write a number with a suffix such as 500Mi, 8Gi or 1T")]
pub struct QuantityError {
    text: String,
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m or 2Gi")
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Quantity, E> {
                Ok(Quantity(value.to_owned()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                Ok(Quantity(value.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
        })
    }
}

/// The whole bytes that a quantity stands for, rounded up.
///
/// # Errors
/// [`QuantityError`] when the text is not a quantity, is negative or does not fit.
pub fn bytes_of(text: &str) -> Result<u64, QuantityError> {
    let bytes = thousandths_of(text)?.div_ceil(1000);
    u64::try_from(bytes).map_err(|_| QuantityError {
        text: text.to_owned(),
    })
}

/// The whole thousandths that a quantity stands for, rounded up: Kubernetes compares no finer ones.
///
/// # Errors
/// [`QuantityError`] when the text is not a quantity, is negative or does not fit.
pub fn thousandths_of(text: &str) -> Result<u128, QuantityError> {
    let wrong = || QuantityError {
        text: text.to_owned(),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 9 {
        return Err(wrong());
    }
    let factor = factor_of(suffix).ok_or_else(wrong)?;
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
    let thousandths = digits.checked_mul(factor).ok_or_else(wrong)?;
    let divisor = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| wrong())?);
    Ok(thousandths.div_ceil(divisor))
}

/// Thousandths per unit of a suffix.
fn factor_of(suffix: &str) -> Option<u128> {
    if let Some(exponent) = suffix.strip_prefix(['e', 'E'])
        && let Ok(exponent) = exponent.parse::<u32>()
    {
        return 10u128.checked_pow(exponent)?.checked_mul(1000);
    }
    Some(match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000u128.pow(2),
        "G" => 1000 * 1000u128.pow(3),
        "T" => 1000 * 1000u128.pow(4),
        "P" => 1000 * 1000u128.pow(5),
        "E" => 1000 * 1000u128.pow(6),
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        "Pi" => 1000 << 50,
        "Ei" => 1000 << 60,
        _ => return None,
    })
}
