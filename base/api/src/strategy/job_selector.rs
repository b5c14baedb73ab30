//! What the server adds to a new job: a selector and labels made from the job's own UID.

use serde_json::Value;

/// Gives a job the selector by which its pods are told from all others, unless it brings its own.
pub(super) fn select_by_uid(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (job["metadata"]["uid"].clone(), job["metadata"]["name"].clone());
    let labels = [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ];
    // Labels that were taken over from the template follow it.
    let own = &job["metadata"]["labels"];
    let follow = own.is_null() || *own == job["spec"]["template"]["metadata"]["labels"];
    for (key, value) in labels {
        job["spec"]["template"]["metadata"]["labels"][key] = value.clone();
    }
    job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid.clone();
    if follow {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_selects_its_own_pods() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {}}}});
        select_by_uid(&mut job);
        assert_eq!(
            job["spec"]["selector"]["matchLabels"],
            json!({"batch.kubernetes.io/controller-uid": "u"})
        );
        assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], "j");
        let mut manual = json!({"metadata": {"name": "j"}, "spec": {"manualSelector": true}});
        select_by_uid(&mut manual);
        assert!(manual["spec"]["selector"].is_null());
    }
}
