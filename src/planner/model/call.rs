//! The call that asks an operator for a forecast, as the plugin makes it and the operator answers it. Data alone: it
//! reads no token, and decides nothing.

use serde::{Deserialize, Serialize};

use super::forecast::Forecast;
use crate::crd::EtcdCluster;

/// The audience of tokens for requests to the operator: the API server itself accepts none of them.
pub const AUDIENCE: &str = "quorate.dev";

/// The request.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForecastRequest {
    /// Authenticates the caller; issued for [`AUDIENCE`].
    pub token: String,
    /// The resource as it would be.
    pub cluster: EtcdCluster,
}

/// The response.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ForecastResponse {
    /// What would be done.
    Forecast(Forecast),
    /// Why there is no forecast, and what to do about it.
    Refused(String),
}
