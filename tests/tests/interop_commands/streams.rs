//! Commands that carry streams: exec, attach, cp, port-forward, debug, proxy.

use anyhow::{Result, ensure};

use crate::world::{BOX, World, shell_pod};

#[test]
fn kubectl_executes() -> Result<()> {
    let world = World::up()?;
    world.shell_pod("box")?;
    world.says("kubectl exec box -- echo hello", "hello")?;
    let both = world.run("kubectl exec box -- sh -c 'echo out; echo err >&2; exit 42'")?;
    ensure!(both.code == 42 && both.out == "out\n", "{both:?}");
    ensure!(both.err == "err\ncommand terminated with exit code 42\n", "{both:?}");
    world.says("echo in and out | kubectl exec -i box -- cat", "in and out")?;
    world.says(
        "seq 1 200000 | kubectl exec -i box -- md5sum | cut -c1-32",
        world.ok("seq 1 200000 | md5sum | cut -c1-32")?.trim(),
    )?;
    world.says("kubectl exec box -- seq 1 200000 | md5sum", world.ok("seq 1 200000 | md5sum")?.trim())?;
    world.fails(
        "kubectl exec box -- no-such-program",
        1,
        "exec: \"no-such-program\": executable file not found in $PATH",
    )?;
    world.fails("kubectl exec box -c nobody -- true", 1, "container nobody")?;
    world.fails("kubectl exec nobody -- true", 1, "pods \"nobody\" not found")?;
    world.says("kubectl exec pod/box -c main -- sh -c 'exit 0'", "")?;
    world.says("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false kubectl exec box -- echo over spdy", "over spdy")?;
    world.says(
        "echo spdy too | KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false kubectl exec -i box -- cat",
        "spdy too",
    )?;
    let spdy = world.run("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false kubectl exec box -- sh -c 'exit 9'")?;
    ensure!(spdy.code == 9, "{spdy:?}");
    world.ok("kubectl delete pod box")?;
    world.down()
}

#[test]
fn kubectl_executes_in_a_terminal() -> Result<()> {
    let world = World::up()?;
    world.shell_pod("box")?;
    for websocket in ["true", "false"] {
        let line = format!("KUBECTL_REMOTE_COMMAND_WEBSOCKETS={websocket} kubectl exec -it box -- sh");
        let mut session = world.in_terminal(&line)?;
        session.type_until("echo size $(stty size)", "size 33 99")?;
        session.type_line("tty && echo is a $((40+2))")?;
        session.until("/dev/pts/")?;
        session.until("is a 42")?;
        session.type_line("exit 3")?;
        let (code, rest) = session.end()?;
        ensure!(code == 3, "{code} {rest}");
    }
    world.ok("kubectl delete pod box")?;
    world.down()
}

#[test]
fn kubectl_attaches() -> Result<()> {
    let world = World::up()?;
    let echo = format!(
        "kubectl run echo --image={BOX} --image-pull-policy=IfNotPresent --restart=Never --stdin --attach=false --overrides='{{\"spec\":{{\"terminationGracePeriodSeconds\":1}}}}' -- sh -c 'while read line; do echo got $line; done; echo end'"
    );
    world.ok(&echo)?;
    world.ok("kubectl wait --for=condition=Ready pod/echo --timeout=40s")?;
    let mut session = world.start("kubectl attach -i echo")?;
    session.type_line("first")?;
    session.until("got first")?;
    let mut watcher = world.start("kubectl attach echo")?;
    watcher.hang_up();
    // It may take a moment until the second is attached: type until it hears.
    podwire_testkit::eventually("the second hears", crate::world::PATIENCE, || {
        session.type_line("again").map_err(|error| error.to_string())?;
        watcher.hears("got again", std::time::Duration::from_millis(500))
    })?;
    drop(watcher);
    drop(session);
    world.ok("kubectl delete pod echo")?;

    // With a terminal, and an end of its own.
    let mut session = world.in_terminal(&format!(
        "kubectl run term --rm -it --image={BOX} --image-pull-policy=IfNotPresent --restart=Never -- sh"
    ))?;
    session.type_line("echo $((6*7)) in $(tty)")?;
    session.until("42 in /dev/")?;
    session.type_line("exit 0")?;
    let (code, rest) = session.end()?;
    ensure!(code == 0 && rest.contains("pod \"term\" deleted"), "{code} {rest}");
    world.down()
}

#[test]
fn kubectl_copies_both_ways() -> Result<()> {
    let world = World::up()?;
    world.shell_pod("box")?;
    world.ok(
        "mkdir -p tree/deep && seq 1 100000 > tree/deep/numbers && echo hi > tree/hi && ln -s hi tree/link",
    )?;
    world.ok("kubectl cp tree/hi box:/data/hi")?;
    world.says("kubectl exec box -- cat /data/hi", "hi")?;
    world.ok("kubectl cp tree box:/data/tree")?;
    world.says(
        "kubectl exec box -- md5sum /data/tree/deep/numbers | cut -c1-32",
        world.ok("md5sum < tree/deep/numbers | cut -c1-32")?.trim(),
    )?;
    world.ok("kubectl cp box:/data/tree back -c main 2>/dev/null")?;
    world.says("diff -r tree/deep back/deep && cat back/hi", "hi")?;
    world.ok("kubectl cp default/box:/etc/passwd passwd 2>/dev/null")?;
    world.tells("cat passwd", &["root:x:0:0"])?;
    // kubectl ends as soon as it has read the end of the archive, which tar writes after its complaint, on another stream:
    // whether it still prints the complaint is its own race. Nothing is made in any case, and exec tells all.
    world.ok("kubectl cp box:/no/such/file x; test ! -e x")?;
    world.fails("kubectl exec box -- tar cf - /no/such/file >/dev/null", 1, "No such file or directory")?;
    world.ok("kubectl delete pod box")?;
    world.down()
}

#[test]
fn kubectl_forwards_ports_and_proxies() -> Result<()> {
    let world = World::up()?;
    world.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: \"localhost/pod-app:latest\", imagePullPolicy: IfNotPresent, args: [serve, \"8080\"], ports: [{name: http, containerPort: 8080}]}\n")?;
    world.ok("kubectl wait --for=condition=Ready pod/web --timeout=40s")?;
    world.ok("kubectl expose pod web --port=80 --target-port=http")?;
    for (target, local, websocket) in [
        ("pod/web", "18080:8080", "true"),
        ("web", "18081:http", "true"),
        ("service/web", "18082:80", "true"),
        ("pod/web", "18083:8080", "false"),
    ] {
        let forward = world.start(&format!(
            "env KUBECTL_PORT_FORWARD_WEBSOCKETS={websocket} kubectl port-forward {target} {local}"
        ))?;
        let port = local.split(':').next().unwrap_or_default();
        forward.until(&format!("Forwarding from 127.0.0.1:{port} -> 8080"))?;
        for _ in 0..3 {
            world.says(&format!("busybox wget -qO- http://127.0.0.1:{port}/"), "hello from web")?;
        }
        // Several at once over one connection.
        world.says(&format!("for i in 1 2 3 4 5; do busybox wget -qO- http://127.0.0.1:{port}/ & done | sort | uniq -c | tr -s ' '; wait"), "5 hello from web")?;
        forward.interrupt()?;
    }
    world.fails("kubectl port-forward pod/nobody 18090:80", 1, "pods \"nobody\" not found")?;

    // Through the server itself, to the pod and to who is behind the service.
    for target in ["pods/web", "pods/web:8080", "services/web:80", "services/http:web:80"] {
        let path = format!("/api/v1/namespaces/default/{target}/proxy/");
        world.says(&format!("kubectl get --raw {path}"), "hello from web")?;
    }
    let proxy = world.start("kubectl proxy --port=18001")?;
    proxy.until("Starting to serve on 127.0.0.1:18001")?;
    world.tells(
        "busybox wget -qO- http://127.0.0.1:18001/api/v1/namespaces/default/pods/web",
        &["\"kind\": \"Pod\"", "\"name\": \"web\""],
    )?;
    world.tells("busybox wget -qO- http://127.0.0.1:18001/version", &["v1.36.4"])?;
    drop(proxy);
    world.ok("kubectl delete pod,service web")?;
    world.down()
}

#[test]
fn kubectl_debugs() -> Result<()> {
    let world = World::up()?;
    world.shell_pod("box")?;
    // An ephemeral container beside the running one, sharing its processes.
    let seen = world.run(&format!(
        "kubectl debug box --image={BOX} --image-pull-policy=IfNotPresent -c doctor --target=main --profile=general --attach=false -- sh -c 'ps; sleep 1000'"
    ))?;
    ensure!(seen.code == 0, "{seen:?}");
    world.until("kubectl get pod box -o jsonpath='{.status.ephemeralContainerStatuses[0].state.running.startedAt}' | wc -c", "20")?;
    world.says("kubectl exec box -c doctor -- echo inside", "inside")?;
    world.tells("kubectl exec box -c doctor -- ps", &["sleep 0.2"])?;
    world.tells("kubectl logs box -c doctor", &["PID"])?;
    world.tells("kubectl describe pod box", &["Ephemeral Containers:", "doctor:"])?;
    world.says("kubectl get pod box -o jsonpath='{.status.containerStatuses[0].restartCount}'", "0")?;
    // With a terminal of its own.
    let mut session = world.in_terminal(&format!(
        "kubectl debug box -it --image={BOX} --image-pull-policy=IfNotPresent --profile=general -- sh"
    ))?;
    session.type_line("echo $((6*7)) in $(tty)")?;
    session.until("42 in /dev/")?;
    session.type_line("exit 0")?;
    let (code, rest) = session.end()?;
    ensure!(code == 0, "{code} {rest}");
    // A copy of the pod with another command.
    world.ok(&format!("kubectl debug box --copy-to=copy --container=main --image={BOX} --profile=general --attach=false -- sleep 1000"))?;
    world.ok("kubectl wait --for=condition=Ready pod/copy --timeout=40s")?;
    // A pod on the node that sees the node.
    world.tells(
        &format!("kubectl debug node/node1 --image={BOX} --image-pull-policy=IfNotPresent --profile=general --attach=false -- sleep 1000"),
        &["Creating debugging pod node-debugger-node1-"],
    )?;
    let pod = world.ok("kubectl get pods -o name | grep node-debugger")?;
    let pod = pod.trim();
    world.ok(&format!("kubectl wait --for=condition=Ready {pod} --timeout=40s"))?;
    world.says(
        &format!("kubectl exec {pod} -- cat /host/etc/hostname"),
        world.ok("cat /etc/hostname")?.trim(),
    )?;
    world.ok("kubectl delete pods --all --now")?;
    world.down()
}

#[test]
fn an_exec_that_is_cut_leaves_nothing_behind() -> Result<()> {
    let world = World::up()?;
    world.apply(&shell_pod("box"))?;
    world.ok("kubectl wait --for=condition=Ready pod/box --timeout=40s")?;
    let session = world.start("kubectl exec -i box -- cat")?;
    world.until("kubectl exec box -- ps | grep -c '[ ]cat$'", "1")?;
    drop(session);
    world.until("kubectl exec box -- ps | grep -c '[ ]cat$' || true", "0")?;
    world.ok("kubectl delete pod box")?;
    world.node.assert_no_pod_residue()?;
    world.down()
}
