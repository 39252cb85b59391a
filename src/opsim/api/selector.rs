//! Label selectors and field selectors, in both of the forms that requests and objects carry.

use serde_json::Value;

use super::object;
use super::refusal::Refusal;

/// A label selector of a list request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Equals(String, String),
    Differs(String, String),
    Exists(String),
    Absent(String),
}

impl Selector {
    /// Chooses everything.
    pub const EVERYTHING: Self = Self(Vec::new());

    /// Chooses by one label.
    pub fn label(key: &str, value: &str) -> Self {
        Self(vec![Requirement::Equals(key.to_owned(), value.to_owned())])
    }

    /// Reads `a=b,c,!d,e!=f`.
    ///
    /// # Errors
    /// Set expressions (`in`, `notin`) are not modelled.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut all = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            if part.contains(['(', ')']) {
                let text = format!("label selector {text:?} with a set expression");
                return Err(Refusal::not_modelled(text));
            }
            let own = |text: &str| text.trim().to_owned();
            let one = if let Some((key, value)) = part.split_once("!=") {
                Requirement::Differs(own(key), own(value))
            } else if let Some((key, value)) = part.split_once("==") {
                Requirement::Equals(own(key), own(value))
            } else if let Some((key, value)) = part.split_once('=') {
                Requirement::Equals(own(key), own(value))
            } else if let Some(key) = part.strip_prefix('!') {
                Requirement::Absent(own(key))
            } else {
                Requirement::Exists(own(part))
            };
            all.push(one);
        }
        Ok(Self(all))
    }

    /// Whether an object's labels fit.
    pub fn fits(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Equals(key, value) => object::label(object, key) == Some(value),
            Requirement::Differs(key, value) => object::label(object, key) != Some(value),
            Requirement::Exists(key) => object::label(object, key).is_some(),
            Requirement::Absent(key) => object::label(object, key).is_none(),
        })
    }
}

/// Whether an object fits a field selector. `metadata.name` and `metadata.namespace` are known for
/// every kind, `spec.nodeName` for pods, `spec.signerName` for requests of certificates.
///
/// # Errors
/// Another field is not modelled.
pub(super) fn field_selector_fits(selector: &str, of: &Value) -> Result<bool, Refusal> {
    for part in selector.split(',').filter(|part| !part.is_empty()) {
        let (differs, pair) = match part.split_once("!=") {
            Some(pair) => (true, Some(pair)),
            None => (false, part.split_once('=')),
        };
        let Some((field, value)) = pair else {
            return Err(Refusal::bad_request(format!("field selector {selector:?}")));
        };
        let found = match field {
            "metadata.name" => object::name(of),
            "metadata.namespace" => object::namespace(of),
            "spec.nodeName" => object::text(of, &["spec", "nodeName"]),
            "spec.signerName" => object::text(of, &["spec", "signerName"]),
            _ => return Err(Refusal::not_modelled(format!("field selector {field:?}"))),
        };
        if (found == value) == differs {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether labels fit a selector as objects carry it (`matchLabels`, `matchExpressions`). An empty
/// selector fits everything; no selector at all fits nothing.
pub fn label_selector_fits(selector: &Value, of: &Value) -> bool {
    let Some(selector) = selector.as_object() else {
        return false;
    };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    let mut pairs = labels.map(|(key, value)| object::label(of, key) == value.as_str());
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    pairs.all(|fits| fits)
        && expressions.into_iter().flatten().all(|expression| {
            let key = object::text(expression, &["key"]);
            requirement_fits(expression, object::label(of, key))
        })
}

/// Whether a label's value fits a requirement with the operators of selectors and of node affinity.
pub fn requirement_fits(requirement: &Value, value: Option<&str>) -> bool {
    let values = object::items(requirement, &["values"]);
    let among = |value: &str| values.iter().any(|wanted| wanted == value);
    let compare = |less: bool| {
        let own: Option<i64> = value.and_then(|value| value.parse().ok());
        let wanted = values.first().and_then(Value::as_str);
        let wanted: Option<i64> = wanted.and_then(|wanted| wanted.parse().ok());
        match (own, wanted) {
            (Some(own), Some(wanted)) => (less && own < wanted) || (!less && own > wanted),
            _ => false,
        }
    };
    match object::text(requirement, &["operator"]) {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(false),
        "Lt" => compare(true),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_choose() {
        let pod = json!({"metadata": {"name": "a", "labels": {"app": "x", "tier": "1"}},
            "spec": {"nodeName": "n1"}});
        for (text, fits) in [
            ("", true),
            ("app=x", true),
            ("app==x,tier", true),
            ("app=y", false),
            ("app!=y", true),
            ("!app", false),
            ("!other", true),
            ("other", false),
        ] {
            assert_eq!(
                Selector::parse(text).map(|s| s.fits(&pod)),
                Ok(fits),
                "{text}"
            );
        }
        assert_eq!(Selector::parse("a in (b)").map_err(|e| e.code), Err(501));
        assert_eq!(field_selector_fits("spec.nodeName=n1", &pod), Ok(true));
        assert_eq!(field_selector_fits("metadata.name!=a", &pod), Ok(false));
        assert!(label_selector_fits(&json!({}), &pod));
        assert!(!label_selector_fits(&Value::Null, &pod));
        let selector = json!({"matchLabels": {"app": "x"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["1", "2"]}]});
        assert!(label_selector_fits(&selector, &pod));
    }
}
