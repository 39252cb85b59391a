//! Which requests of kubelets count, and what one is answered with.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use super::*;

const UID: &str = "a-1";

fn pod() -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "demo-1-0", "uid": UID},
        "spec": {"nodeName": "node-a", "serviceAccountName": "etcd", "containers": []}});
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

/// A request as a kubelet makes it, for a pod with this UID, so many seconds after 1970.
fn request(name: &str, pod_uid: &str, port: &str, second: i64) -> PodCertificateRequest {
    let at = jiff::Timestamp::from_second(second).expect("a time");
    let request = json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": at.to_string()},
        "spec": {"signerName": MEMBER_SIGNER, "podName": "demo-1-0", "podUID": pod_uid,
            "serviceAccountName": "etcd", "serviceAccountUID": "s", "nodeName": "node-a", "nodeUID": "n",
            "maxExpirationSeconds": build::POD_CERTIFICATE_SECONDS, "stubPKCS10Request": "",
            "unverifiedUserAnnotations": {ANNOTATION_REQUEST_PORT: port}},
    });
    serde_json::from_value(request).expect("a request")
}

fn condition(type_: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: "Signed".to_owned(),
        message: String::new(),
        last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

fn found(all: &[PodCertificateRequest]) -> Vec<(String, TlsPort, String)> {
    let pods = BTreeMap::from([("demo-1".to_owned(), pod())]);
    let all = requests(all, &pods).into_iter();
    all.map(|((member, port), facts)| (member, port, facts.name))
        .collect()
}

#[test]
fn the_newest_request_of_each_port_counts() {
    let all = [
        request("c", UID, "peer", 30),
        request("b", UID, "client", 20),
        request("a", UID, "client", 10),
    ];
    let member = "demo-1".to_owned();
    let expected = [
        (member.clone(), TlsPort::Client, "b".to_owned()),
        (member, TlsPort::Peer, "c".to_owned()),
    ];
    assert_eq!(found(&all), expected);
}

/// A kubelet that was restarted twice has two open requests, and the key of the second one. The first was signed after it, so that
/// what was recorded was a certificate that no server has.
#[test]
fn earlier_requests_are_left_alone() {
    let mut newest = request("b", UID, "peer", 20);
    let earlier = request("a", UID, "peer", 10);
    assert_eq!(found(&[newest.clone(), earlier.clone()])[0].2, "b");
    newest.status.conditions = vec![condition("Issued")];
    assert_eq!(found(&[newest, earlier]), []);
}

/// Whoever may create requests, as any kubelet, gets nothing for a pod that is not the member's, or not where it says.
#[test]
fn others_requests_are_left_alone() {
    let mut answered = request("a", UID, "peer", 10);
    answered.status.conditions = vec![condition("Issued")];
    let mut elsewhere = request("b", UID, "peer", 10);
    elsewhere.spec.node_name = "node-b".to_owned();
    let mut another = request("c", UID, "peer", 10);
    another.spec.service_account_name = "default".to_owned();
    let mut foreign = request("d", UID, "peer", 10);
    foreign.spec.signer_name = "example.com/member".to_owned();
    let gone = request("e", "an-earlier-pod", "peer", 10);
    let portless = request("f", UID, "metrics", 10);
    for one in [answered, elsewhere, another, foreign, gone, portless] {
        assert_eq!(found(&[one]), []);
    }
}

/// The API server compares the times with the certificate's, and takes one that begins at most five minutes ago.
#[test]
fn an_answer_says_what_the_certificate_does() {
    let day = 86_400;
    let validity = |from: i64, until: i64| {
        let at = |second| jiff::Timestamp::from_second(second).expect("a time");
        Validity {
            not_before: at(from),
            not_after: at(until),
        }
    };
    let authority = crate::server::tls::issue::Authority::new("ours", validity(0, 900 * day), None);
    let authority = authority.expect("an authority");
    let key = rcgen::KeyPair::generate().expect("a key");
    let asked = rcgen::CertificateParams::default().serialize_request(&key);
    let asked = asked.expect("a request");
    let times = validity(300 * day, 330 * day);
    let names = ["demo-1-0.demo-peers".to_owned()];
    let signed = authority.issue_for("demo-1", &names, Purpose::Member, times, asked.der());
    let signed = signed.expect("a certificate");
    let chain = crate::server::tls::certificates::Chain::read(&signed).expect("a chain");
    assert!(chain.fits(&key.serialize_pem()));
    assert!(chain.leaf.names.contains("demo-1-0.demo-peers"));
    let now_ms = u64::try_from(300 * day * 1000).expect("a time");
    let answer = answer(&request("a", UID, "peer", 10), &signed, now_ms).expect("an answer");
    let status = &answer["status"];
    assert_eq!(status["notBefore"], "1970-10-28T00:00:00Z");
    assert_eq!(status["notAfter"], "1970-11-27T00:00:00Z");
    assert_eq!(status["beginRefreshAt"], "1970-11-17T00:00:00Z");
    assert_eq!(status["certificateChain"], signed);
    assert_eq!(status["conditions"][0]["type"], "Issued");
    let refused = authority.issue_for("demo-1", &names, Purpose::Member, times, b"no request");
    assert!(refused.is_err());
}

#[test]
fn a_pod_whose_server_does_not_run_starts() {
    let starting = |state: Value| {
        let status = json!({"name": build::CONTAINER, "ready": false, "restartCount": 0,
            "image": "", "imageID": "", "state": state});
        let pod = json!({"metadata": {"creationTimestamp": "1970-01-01T01:00:00Z"},
            "spec": {"nodeName": "node-a", "containers": []}, "status": {"containerStatuses": [status]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        [3_660, 7_200].map(|now_s| is_starting(&pod, now_s))
    };
    let waits = json!({"waiting": {"reason": "ContainerCreating"}});
    assert_eq!(starting(waits), [true, false], "for five minutes");
    assert_eq!(starting(json!({"running": {}})), [false, false]);
    let rebooted = json!({"terminated": {"exitCode": 255, "finishedAt": "1970-01-01T01:59:00Z"}});
    assert_eq!(starting(rebooted), [true, true], "its node restarted");
    let crashes = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    assert_eq!(starting(crashes), [false, false]);
    assert!(!is_starting(&Pod::default(), 0), "without a node");
}
