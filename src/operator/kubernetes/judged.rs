//! The judgement of a resource, kept while its specification stays the same: the schema's rules are
//! expressions, and a reconcile every few seconds would evaluate them each time. Judges nothing
//! itself.

use std::sync::Arc;

use kube::ResourceExt;

use crate::crd::{EtcdCluster, EtcdClusterSpec, Invalid, ValidatedCluster};

/// The last judgement, of one resource.
#[derive(Clone, Default)]
pub(super) struct Judged(Option<Arc<Judgement>>);

/// All that a judgement follows from, and what it was.
struct Judgement {
    metadata: [Option<String>; 3],
    generation: Option<i64>,
    /// That of a refused resource: an admitted one's is in the outcome.
    refused: Option<EtcdClusterSpec>,
    outcome: Result<ValidatedCluster, Invalid>,
}

impl Judgement {
    fn spec(&self) -> Option<&EtcdClusterSpec> {
        let admitted = self.outcome.as_ref().ok();
        admitted
            .map(|cluster| &cluster.spec)
            .or(self.refused.as_ref())
    }
}

impl Judged {
    /// The judgement of this resource: the last one if it was of the same, else a new one.
    pub(super) fn of(
        &mut self,
        resource: &EtcdCluster,
        judge: impl FnOnce(&EtcdCluster) -> Result<ValidatedCluster, Invalid>,
    ) -> Result<ValidatedCluster, Invalid> {
        let metadata = [
            resource.metadata.name.clone(),
            resource.namespace(),
            resource.uid(),
        ];
        let generation = resource.metadata.generation;
        if let Some(last) = &self.0
            && last.metadata == metadata
            && last.generation == generation
            && last.spec() == Some(&resource.spec)
        {
            return last.outcome.clone();
        }
        let outcome = judge(resource);
        self.0 = Some(Arc::new(Judgement {
            metadata,
            generation,
            refused: outcome.is_err().then(|| resource.spec.clone()),
            outcome: outcome.clone(),
        }));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::admission::admit;

    fn resource() -> EtcdCluster {
        let mut resource = EtcdCluster::new("demo", EtcdClusterSpec::default());
        resource.metadata.namespace = Some("prod".into());
        resource.metadata.uid = Some("uid".into());
        resource.metadata.generation = Some(1);
        resource
    }

    #[test]
    fn an_unchanged_resource_is_judged_once() {
        let mut judged = Judged::default();
        let mut resource = resource();
        let mut times = 0;
        let mut judge = |resource: &EtcdCluster| {
            let outcome = judged.of(resource, |resource| {
                times += 1;
                admit(resource)
            });
            assert_eq!(outcome, admit(resource));
            (times, outcome.is_ok())
        };
        assert_eq!(judge(&resource), (1, true));
        resource.metadata.resource_version = Some("2".into());
        assert_eq!(judge(&resource), (1, true), "the status was written");
        resource.metadata.generation = Some(2);
        assert_eq!(judge(&resource), (2, true), "a cluster has its generation");
        resource.spec.replicas = 77;
        assert_eq!(judge(&resource), (3, false), "refused");
        assert_eq!(judge(&resource), (3, false), "still");
        resource.metadata.uid = Some("another life".into());
        resource.spec.replicas = 3;
        assert_eq!(judge(&resource), (4, true));
    }
}
