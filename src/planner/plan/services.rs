//! Services whose settings changed: the client Service comes first. What Kubernetes refuses, such as a family of addresses
//! that it does not have, is then refused once in each reconcile, and not once for each Service: a reconcile gives up after
//! a few failed writes, and a lost member behind them would wait.

use crate::crd::client_service_name;

use super::observed::{ObjectKey, ObjectKind};
use super::situation::Situation;

impl Situation<'_> {
    /// Whether a change of another Service waits until Kubernetes has taken that of the client Service.
    pub(super) fn waits_for_client_service(&self, service: &str) -> bool {
        let name = client_service_name(&self.cluster.name);
        let first = ObjectKey {
            kind: ObjectKind::Service,
            name,
        };
        let Some(wanted) = self.o.wanted_objects.get(&first) else {
            return false;
        };
        let found = self.o.objects.get(&first);
        let taken = found.is_some_and(|found| found.inputs.as_ref() == Some(wanted));
        service != first.name && !taken
    }
}
