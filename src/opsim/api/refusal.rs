//! Why the API server does not do what was asked, as the `Status` object that clients read.

use serde_json::{Value, json};

use super::kinds::Kind;

/// A request that was refused; nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason} ({code}): {message}")]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// `Status.reason`, CamelCase.
    pub reason: String,
    /// `Status.message`.
    pub message: String,
    /// `Status.details`, or null.
    pub details: Value,
}

impl Refusal {
    /// Any refusal, without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: Value::Null,
        }
    }

    /// 404: no object has this name.
    pub fn not_found(kind: Kind, name: &str) -> Self {
        let text = format!("{} \"{name}\" not found", kind.resource());
        Self::new(404, "NotFound", text).about(kind, name)
    }

    /// 409: an object has this name already.
    pub fn already_exists(kind: Kind, name: &str) -> Self {
        let text = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", text).about(kind, name)
    }

    /// 409: the object is not the one that was meant any more.
    pub fn conflict(kind: Kind, name: &str, why: &str) -> Self {
        let text = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.resource()
        );
        Self::new(409, "Conflict", text).about(kind, name)
    }

    /// 409: the object was changed since it was read.
    pub fn stale(kind: Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// 422: a field has a value that it must not have.
    pub fn invalid(kind: Kind, name: &str, field: &str, why: &str) -> Self {
        let text = format!("{} \"{name}\" is invalid: {field}: {why}", kind.name());
        let mut refusal = Self::new(422, "Invalid", text).about(kind, name);
        refusal.details["causes"] =
            json!([{"field": field, "message": why, "reason": "FieldValueInvalid"}]);
        refusal
    }

    /// 400: the request itself makes no sense.
    pub fn bad_request(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    /// 403: not allowed, by rights or by an admission rule.
    pub fn forbidden(kind: Kind, name: &str, why: &str) -> Self {
        let text = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        Self::new(403, "Forbidden", text).about(kind, name)
    }

    /// 410: the version that was asked for is too old.
    pub fn expired() -> Self {
        Self::new(
            410,
            "Expired",
            "The resourceVersion for the provided watch is too old.",
        )
    }

    /// 429: not now.
    pub fn too_many_requests(why: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", why)
    }

    /// 500: the server's own trouble.
    pub fn internal(why: impl Into<String>) -> Self {
        Self::new(500, "InternalError", why)
    }

    /// 503: no server answers.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", why)
    }

    /// 501: real Kubernetes does something here that this simulation does not model. A harness
    /// must fail a run that meets it.
    pub fn not_modelled(what: impl Into<String>) -> Self {
        Self::new(501, "NotModelled", what)
    }

    pub(super) fn about(mut self, kind: Kind, name: &str) -> Self {
        self.details = json!({"name": name, "group": kind.facts().group, "kind": kind.plural()});
        self
    }

    /// The body of the answer.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
