//! Evictions: deletions of pods that a PDB may refuse.

use serde_json::{Value, json};

use super::delete::Delete;
use super::kinds::Kind;
use super::object;
use super::refusal::Refusal;
use super::selector::label_selector_fits;
use super::server::ApiServer;

impl ApiServer {
    /// Evicts a pod, as `kubectl drain` does.
    ///
    /// # Errors
    /// 404 without such a pod, 429 when a PDB does not allow it now, 409 when a precondition
    /// of the options fails.
    pub fn evict(
        &mut self,
        actor: &str,
        (namespace, name): (&str, &str),
        options: &Value,
    ) -> Result<(), Refusal> {
        let Some(pod) = self.get(Kind::Pod, namespace, name) else {
            return Err(Refusal::not_found(Kind::Pod, name));
        };
        let how = Delete::read(options)?;
        let phase = object::text(&pod, &["status", "phase"]);
        let free = matches!(phase, "Pending" | "Succeeded" | "Failed") || object::is_deleting(&pod);
        if !free {
            let pdbs = self.all(Kind::PodDisruptionBudget);
            let fits = |pdb: &&std::sync::Arc<Value>| {
                object::namespace(pdb) == namespace
                    && label_selector_fits(&pdb["spec"]["selector"], &pod)
            };
            let pdbs: Vec<_> = pdbs.filter(fits).cloned().collect();
            match pdbs.as_slice() {
                [] => {}
                [pdb] => self.spend(pdb, &pod)?,
                _ => {
                    let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                    return Err(Refusal::internal(text));
                }
            }
        }
        // Read by a Job's failure policy alone.
        if object::text(&pod, &["spec", "restartPolicy"]) == "Never" {
            let now_ms = self.now_ms();
            let why = Some(("EvictionByEvictionAPI", "Eviction API: evicting"));
            self.edit("apiserver", Kind::Pod, (namespace, name), |pod| {
                object::set_condition(pod, now_ms, "DisruptionTarget", true, why);
            });
        }
        self.delete(actor, Kind::Pod, (namespace, name), &how)
            .map(drop)
    }

    /// Takes one disruption from the PDB, or refuses.
    fn spend(&mut self, pdb: &Value, pod: &Value) -> Result<(), Refusal> {
        let count = |field: &str| object::number(pdb, &["status", field]).unwrap_or(0);
        let (healthy, desired) = (count("currentHealthy"), count("desiredHealthy"));
        if !object::holds(pod, "Ready") {
            let always = object::text(pdb, &["spec", "unhealthyPodEvictionPolicy"]);
            if always == "AlwaysAllow" || (healthy >= desired && desired > 0) {
                return Ok(());
            }
        }
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        let name = object::name(pdb);
        let refuse = |why: String| {
            let mut refusal = Refusal::too_many_requests(text);
            refusal.details = json!({"causes": [{"reason": "DisruptionBudget", "message": why}]});
            Err(refusal)
        };
        let generation = object::number(pdb, &["metadata", "generation"]).unwrap_or(0);
        if count("observedGeneration") < generation {
            return refuse(format!(
                "The PDB {name} is still being processed by the server."
            ));
        }
        if count("disruptionsAllowed") <= 0 {
            return refuse(format!(
                "The PDB {name} needs {desired} healthy pods and has {healthy} currently"
            ));
        }
        let (at, pod) = (object::time(self.now_ms()), object::name(pod).to_owned());
        let id = (object::namespace(pdb), name);
        self.edit("apiserver", Kind::PodDisruptionBudget, id, |pdb| {
            let left = object::number(pdb, &["status", "disruptionsAllowed"]).unwrap_or(0) - 1;
            object::put(pdb, &["status", "disruptionsAllowed"], json!(left));
            object::put(pdb, &["status", "disruptedPods", &pod], json!(at));
        });
        Ok(())
    }
}
