//! The objects that the operator of release 0.1.0 created on a real Kubernetes (`tests/data/releases/0.1.0/objects`)
//! match this build's: an upgrade of the operator alone changes no object's inputs, so it restarts no member.

use std::path::Path;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{resource_objects, wanted_inputs, wanted_slot_inputs};
use crate::crd::{ANNOTATION_INPUTS, EtcdCluster, validate};
use crate::plan::ObjectKind;

/// The objects of one kind; what this build has no field for is ignored, as from the API server.
fn objects<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/data/releases/0.1.0/objects");
    let text = std::fs::read_to_string(folder.join(format!("{kind}.json"))).expect("kept");
    let list: Value = serde_json::from_str(&text).expect("JSON");
    let items = list["items"].as_array().expect("a list").iter();
    items
        .map(|item| serde_json::from_value(item.clone()).expect("this build reads it"))
        .collect()
}

fn inputs(meta: &ObjectMeta) -> Option<&str> {
    let annotations = meta.annotations.as_ref()?;
    annotations.get(ANNOTATION_INPUTS).map(String::as_str)
}

#[test]
fn the_members_of_0_1_0_are_up_to_date() {
    let clusters: Vec<EtcdCluster> = objects("etcdclusters");
    let cluster = validate(&clusters[0]).expect("admitted by this build as well");
    let sets: Vec<StatefulSet> = objects("statefulsets");
    assert_eq!(sets.len(), 3);
    let wanted = wanted_inputs(&cluster);
    for set in &sets {
        assert_eq!(inputs(&set.metadata), Some(wanted.as_str()));
    }
}

#[test]
fn the_services_of_0_1_0_are_up_to_date() {
    let clusters: Vec<EtcdCluster> = objects("etcdclusters");
    let cluster = validate(&clusters[0]).expect("admitted");
    let services: Vec<Service> = objects("services");
    let named = |name: &str| {
        services
            .iter()
            .find(|s| s.metadata.name.as_deref() == Some(name))
    };
    let mut compared = 0;
    for (key, wanted) in resource_objects(&cluster) {
        if key.kind == ObjectKind::Service {
            let service = named(&key.name).expect("0.1.0 made it under the same name");
            assert_eq!(
                inputs(&service.metadata),
                Some(wanted.as_str()),
                "{}",
                key.name
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 2);
    for slot in 0..3 {
        let service = named(&format!("demo-client-{slot}")).expect("a slot");
        assert_eq!(
            inputs(&service.metadata),
            Some(wanted_slot_inputs(&cluster).as_str())
        );
    }
}
