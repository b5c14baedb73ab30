//! A pod's path as a mermaid sequence diagram, in the form of the mission documents.

use super::{
    Arrow, Moment,
    draw::{participants, shown_start, shown_time},
    moments, start, twin,
};

/// The diagram: participants in the documents' order, then calls, notes and answers as they happened.
pub fn mermaid(arrows: &[Arrow]) -> String {
    let mut text = String::from("sequenceDiagram\n");
    for name in participants(arrows) {
        let plain = identifier(&name);
        // A plugin may be called what mermaid does not take for a name.
        let shown = twin(arrows, &name).or((plain != name).then_some(&name));
        let alias = shown.map(|shown| format!(" as {}", safe(shown))).unwrap_or_default();
        text.push_str(&format!("    participant {plain}{alias}\n"));
    }
    let start = start(arrows);
    for moment in moments(arrows) {
        let (Moment::Call(arrow) | Moment::Reply(arrow)) = moment;
        let (from, to) = (identifier(&arrow.from), identifier(&arrow.to));
        let (at, took) = (shown_start(arrow, start), shown_time(arrow.micros));
        let what = safe(&arrow.what);
        text.push_str(&match moment {
            Moment::Call(arrow) if arrow.is_note() => format!("    Note over {from}: {what} [{at}]\n"),
            Moment::Call(arrow) if arrow.is_told() => format!("    {from}-->>{to}: {what} [{at}]\n"),
            Moment::Call(_) => format!("    {from}->>{to}: {what} [{at}]\n"),
            Moment::Reply(arrow) => format!("    {to}-->>{from}: {} [{took}]\n", safe(arrow.answer())),
        });
    }
    text
}

fn identifier(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    if plain.is_empty() { "unknown".to_owned() } else { plain }
}

/// Text that mermaid does not read as syntax.
fn safe(text: &str) -> String {
    text.replace([';', '#'], ",").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::{super::draw::tests::path, *};

    #[test]
    fn participants_stand_in_the_missions_order_and_arrows_in_time() {
        let text = mermaid(&path());
        let order: Vec<&str> =
            text.lines().filter_map(|line| line.trim().strip_prefix("participant ")).collect();
        assert_eq!(
            order,
            [
                "KubeCtl",
                "APIServer",
                "Scheduler",
                "Kubelet",
                "ContainerRuntime as containerd v2.4.2",
                "CNIPlugin"
            ]
        );
        let lines: Vec<&str> =
            text.lines().map(str::trim).skip_while(|line| !line.contains("Kubelet->>")).collect();
        assert_eq!(
            lines,
            [
                "Kubelet->>ContainerRuntime: RunPodSandbox [4.0 ms]",
                "ContainerRuntime->>CNIPlugin: ADD eth0 [5.0 ms]",
                "CNIPlugin-->>ContainerRuntime: 10.88.0.2 [1.0 ms]",
                "ContainerRuntime-->>Kubelet: sandbox 1 [5.0 ms]",
            ],
            "{text}"
        );
        assert!(text.contains("APIServer-->>Scheduler: watch: ADDED [2.5 ms]"), "{text}");
        assert!(!text.contains(';'), "a semicolon would end the statement: {text}");
    }
}
