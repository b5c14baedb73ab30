//! Reads the part of mermaid's sequenceDiagram grammar that the mission documents use; anything else is an error.

use anyhow::{Context, Result, bail};

/// A parsed diagram.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagram {
    /// Participants in order: identifier, and the name it is shown with.
    pub participants: Vec<(String, String)>,
    /// Everything that happens, in order.
    pub steps: Vec<Step>,
}

/// One line of what happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A solid arrow.
    Call(Message),
    /// A dashed arrow.
    Reply(Message),
    /// A note over one participant or two.
    Note {
        /// Over whom.
        over: Vec<String>,
        /// The words.
        text: String,
    },
}

/// Words from one participant to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The sender.
    pub from: String,
    /// The receiver.
    pub to: String,
    /// The words.
    pub text: String,
}

impl Diagram {
    /// The identifiers of the participants, in order.
    pub fn names(&self) -> Vec<&str> {
        self.participants.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The name that a participant is shown with.
    pub fn alias(&self, name: &str) -> Option<&str> {
        self.participants.iter().find(|(known, _)| known == name).map(|(_, alias)| alias.as_str())
    }

    /// The place of the first step at or after `start` that satisfies `wanted`.
    pub fn find(&self, start: usize, wanted: impl Fn(&Step) -> bool) -> Option<usize> {
        (start..self.steps.len()).find(|at| wanted(&self.steps[*at]))
    }
}

/// Parses a diagram, or says which line is not one of the grammar's.
pub fn parse(text: &str) -> Result<Diagram> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("%%"));
    if lines.next() != Some("sequenceDiagram") {
        bail!("the first line is not sequenceDiagram");
    }
    let mut diagram = Diagram::default();
    for line in lines {
        read_line(&mut diagram, line).with_context(|| format!("line {line:?}"))?;
    }
    for step in &diagram.steps {
        let used: Vec<&String> = match step {
            Step::Call(message) | Step::Reply(message) => vec![&message.from, &message.to],
            Step::Note { over, .. } => over.iter().collect(),
        };
        for name in used {
            if diagram.alias(name).is_none() {
                bail!("{name} takes part but is not declared");
            }
        }
    }
    Ok(diagram)
}

fn read_line(diagram: &mut Diagram, line: &str) -> Result<()> {
    // A semicolon ends a statement and a hash begins an entity: neither may stand in words.
    if line.contains([';', '#']) {
        bail!("a separator within words");
    }
    if let Some(rest) = line.strip_prefix("participant ") {
        let (name, alias) = rest.split_once(" as ").unwrap_or((rest, rest));
        let name = identifier(name)?;
        if diagram.alias(&name).is_some() {
            bail!("declared twice");
        }
        diagram.participants.push((name, alias.trim().to_owned()));
        return Ok(());
    }
    let (head, words) = line.split_once(':').context("no colon before the words")?;
    let text = words.trim().to_owned();
    if let Some(names) = head.strip_prefix("Note over ") {
        let over = names.split(',').map(|name| identifier(name.trim())).collect::<Result<Vec<_>>>()?;
        if over.len() > 2 {
            bail!("a note over more than two");
        }
        diagram.steps.push(Step::Note { over, text });
        return Ok(());
    }
    // The dashed arrow first: it ends like the solid one.
    if let Some((from, to)) = head.split_once("-->>") {
        diagram.steps.push(Step::Reply(message(from, to, text)?));
    } else if let Some((from, to)) = head.split_once("->>") {
        diagram.steps.push(Step::Call(message(from, to, text)?));
    } else {
        bail!("neither an arrow, a note nor a participant");
    }
    Ok(())
}

fn message(from: &str, to: &str, text: String) -> Result<Message> {
    // `+` and `-` activate and deactivate the receiver.
    let to = to.trim_start_matches(['+', '-']);
    Ok(Message { from: identifier(from)?, to: identifier(to)?, text })
}

fn identifier(word: &str) -> Result<String> {
    let word = word.trim();
    if word.is_empty() || !word.chars().all(|c| c.is_alphanumeric() || c == '_') {
        bail!("{word:?} is not an identifier");
    }
    Ok(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagram_is_read_with_its_participants_arrows_and_notes() {
        let text = "sequenceDiagram\n  participant A as the first\n  participant B\n  A->>+B: ask: now\n  Note over A,B: both\n  B-->>-A: answer\n";
        let diagram = parse(text).unwrap();
        assert_eq!(diagram.names(), ["A", "B"]);
        assert_eq!(diagram.alias("A"), Some("the first"));
        let ask = Message { from: "A".into(), to: "B".into(), text: "ask: now".into() };
        assert_eq!(diagram.steps[0], Step::Call(ask));
        assert!(matches!(&diagram.steps[2], Step::Reply(reply) if reply.text == "answer"));
    }

    #[test]
    fn what_mermaid_would_not_draw_is_refused() {
        for text in [
            "flowchart\n",
            "sequenceDiagram\n  A->>B: undeclared\n",
            "sequenceDiagram\n  participant A\n  A->>A: one; two\n",
            "sequenceDiagram\n  participant A\n  A=>A: what\n",
            "sequenceDiagram\n  participant A B\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
