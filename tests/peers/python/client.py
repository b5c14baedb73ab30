"""The Python client against a cluster: creates, lists, watches, reads logs, execs, patches, deletes.

Prints one line per step; any surprise is an exception and a non-zero exit code.
"""

import sys
import threading

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import stream

IMAGE = "localhost/pod-app:latest"


def pod(name):
    """A pod as plain data; apiVersion and kind are left to the server."""
    return {
        "metadata": {"name": name, "labels": {"by": "python"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "args": ["serve", "80"]}
            ],
        },
    }


def watch_until_running(core, seen):
    """Collects the events of our pods until one of them runs and has an address."""
    for event in watch.Watch().stream(
        core.list_namespaced_pod, "default", label_selector="by=python", timeout_seconds=60
    ):
        found = event["object"]
        seen.append((event["type"], found.metadata.name, found.status.phase))
        if found.status.phase == "Running" and found.status.pod_ip:
            return


def refused(status, call, *args, **kwargs):
    """The body of an answer that must be a refusal with this status."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == status, error
        return error.body
    raise AssertionError(f"{call} was not refused")


def walk_pod(core):
    seen = []
    watcher = threading.Thread(target=watch_until_running, args=(core, seen), daemon=True)
    watcher.start()
    made = core.create_namespaced_pod("default", pod("snake"))
    assert made.metadata.uid and made.kind in (None, "Pod"), made
    watcher.join(60)
    assert not watcher.is_alive(), seen
    assert seen[0][0] == "ADDED" and seen[-1][2] == "Running", seen
    print("watched", len(seen) > 1)

    listed = core.list_namespaced_pod("default", label_selector="by=python", field_selector="status.phase=Running")
    print("listed", [item.metadata.name for item in listed.items])
    print("version", client.VersionApi().get_code().git_version.startswith("v1.36"))
    print("log", core.read_namespaced_pod_log("snake", "default").splitlines()[0])

    said = stream(
        core.connect_get_namespaced_pod_exec, "snake", "default",
        command=["/pod-app", "echo", "hello", "python"], stdout=True, stderr=True,
    )
    print("exec", said.strip())
    session = stream(
        core.connect_get_namespaced_pod_exec, "snake", "default", command=["/pod-app", "cat"],
        stdin=True, stdout=True, stderr=True, _preload_content=False,
    )
    session.write_stdin("to and fro\n")
    print("stdin", session.readline_stdout(timeout=20))
    session.close()
    session = stream(
        core.connect_get_namespaced_pod_exec, "snake", "default", command=["/pod-app", "exit", "5"],
        stdout=True, stderr=True, _preload_content=False,
    )
    session.run_forever(timeout=20)
    print("exit", session.returncode)
    core.delete_namespaced_pod("snake", "default")


def walk_maps(core):
    core.create_namespaced_config_map("default", {"metadata": {"name": "one"}, "data": {"a": "b"}})
    body = refused(409, core.create_namespaced_config_map, "default", {"metadata": {"name": "one"}})
    assert '"reason":"AlreadyExists"' in body, body
    patched = core.patch_namespaced_config_map("one", "default", {"data": {"c": "d"}})
    print("patched", patched.data)
    for number in range(7):
        core.create_namespaced_config_map("default", {"metadata": {"name": f"m{number}", "labels": {"page": "d"}}})
    page = core.list_namespaced_config_map("default", label_selector="page=d", limit=3)
    sizes = [len(page.items)]
    while page.metadata._continue:
        page = core.list_namespaced_config_map("default", label_selector="page=d", limit=3, _continue=page.metadata._continue)
        sizes.append(len(page.items))
    print("pages", sizes)
    core.delete_collection_namespaced_config_map("default", label_selector="page=d")
    print("left", len(core.list_namespaced_config_map("default", label_selector="page=d").items))
    refused(404, core.read_namespaced_config_map, "nobody", "default")


def walk_dynamic():
    api = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version="v1", kind="ConfigMap")
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn"}, "data": {"x": "y"}}
    applied = api.server_side_apply(body=manifest, namespace="default", field_manager="python")
    print("applied", applied.metadata.managedFields[0].manager)
    api.delete(name="dyn", namespace="default")


def main():
    config.load_kube_config()
    core = client.CoreV1Api()
    walk_pod(core)
    walk_maps(core)
    walk_dynamic()
    print("done")


if __name__ == "__main__":
    sys.exit(main())
