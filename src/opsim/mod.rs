//! Simulation of the operator: its passes and its executor as shipped, over a simulated Kubernetes.
//!
//! Never replaces shipped logic by a model: what is simulated is only what lies outside of the
//! operator (the API server, the controllers and nodes behind it, and the members' processes).

pub mod api;
pub mod kube;
