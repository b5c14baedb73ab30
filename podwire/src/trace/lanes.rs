//! The sequence diagram in a wide terminal: one lane per participant, one row per call, note and answer.

use super::{
    Arrow, Moment,
    draw::{shown_start, shown_time},
    moments, start, twin,
};

/// Draws the diagram with lanes `lane` columns wide.
pub fn lanes(arrows: &[Arrow], names: &[String], lane: usize) -> String {
    let board = Board { names, lane };
    let mut text = String::new();
    board.heads(arrows, &mut text);
    let start = start(arrows);
    for moment in moments(arrows) {
        match moment {
            Moment::Call(arrow) => board.call(arrow, &shown_start(arrow, start), &mut text),
            Moment::Reply(arrow) => board.reply(arrow, &mut text),
        }
    }
    text
}

/// The lanes, and where things stand in them.
struct Board<'a> {
    names: &'a [String],
    lane: usize,
}

impl Board<'_> {
    fn center(&self, at: usize) -> usize {
        at * self.lane + self.lane / 2
    }

    fn column(&self, name: &str) -> usize {
        self.center(self.names.iter().position(|known| known == name).unwrap_or(0))
    }

    /// The participants' names, and below them the upstream programs that play some.
    fn heads(&self, arrows: &[Arrow], text: &mut String) {
        let names: Vec<String> = self.names.to_vec();
        let twins: Vec<String> =
            names.iter().map(|name| twin(arrows, name).unwrap_or_default().to_owned()).collect();
        for row in [names, twins] {
            if row.iter().all(String::is_empty) {
                continue;
            }
            let mut line = vec![' '; self.lane * self.names.len()];
            for (at, words) in row.iter().enumerate() {
                let shown: Vec<char> = words.chars().take(self.lane - 1).collect();
                put(&mut line, self.center(at).saturating_sub(shown.len() / 2), &shown);
            }
            push_line(text, "", &line);
        }
    }

    fn row(&self) -> Vec<char> {
        let mut row = vec![' '; self.lane * self.names.len()];
        for at in 0..self.names.len() {
            row[self.center(at)] = '│';
        }
        row
    }

    /// Words beside a lane: right of it, or left of it where they would leave the board; cut if they are too long.
    fn words(&self, row: &mut Vec<char>, lane: usize, words: &[char]) {
        let width = self.lane * self.names.len();
        let right = lane + 2;
        if right + words.len() <= width {
            put(row, right, words);
        } else if words.len() < lane {
            put(row, lane - 1 - words.len(), words);
        } else {
            put(row, right, &words[..words.len().min(width.saturating_sub(right))]);
        }
    }

    fn call(&self, arrow: &Arrow, at: &str, text: &mut String) {
        let from = self.column(&arrow.from);
        if arrow.is_note() {
            let mut row = self.row();
            row[from] = '◆';
            self.words(&mut row, from, &arrow.what.chars().collect::<Vec<_>>());
            push_line(text, at, &row);
            return;
        }
        let line = if arrow.is_told() { '╌' } else { '─' };
        self.shaft(from, self.column(&arrow.to), line, &arrow.what, at, text);
    }

    fn reply(&self, arrow: &Arrow, text: &mut String) {
        let words = format!("{} ({})", arrow.answer(), shown_time(arrow.micros));
        self.shaft(self.column(&arrow.to), self.column(&arrow.from), '╌', &words, "", text);
    }

    /// An arrow with its words in it, or above it when they are too long.
    fn shaft(&self, from: usize, to: usize, line: char, words: &str, at: &str, text: &mut String) {
        let words: Vec<char> = words.chars().collect();
        let (low, high) = (from.min(to), from.max(to));
        let mut row = self.row();
        row[low + 1..high].fill(line);
        if to > from {
            row[high - 1] = '▶';
        } else {
            row[low + 1] = '◀';
        }
        if words.len() + 6 <= high - low {
            let inside = [&[' '], words.as_slice(), &[' ']].concat();
            put(&mut row, low + 3, &inside);
            push_line(text, at, &row);
        } else {
            let mut above = self.row();
            self.words(&mut above, low, &words);
            push_line(text, at, &above);
            push_line(text, "", &row);
        }
    }
}

fn put(row: &mut Vec<char>, at: usize, chars: &[char]) {
    if row.len() < at + chars.len() {
        row.resize(at + chars.len(), ' ');
    }
    row[at..at + chars.len()].copy_from_slice(chars);
}

fn push_line(text: &mut String, at: &str, row: &[char]) {
    let line: String = row.iter().collect();
    text.push_str(format!("{at:>10}  {line}").trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::draw::{participants, tests::path};
    use super::*;

    #[test]
    fn words_stand_in_their_arrow_or_above_it_and_twins_below_their_name() {
        let arrows = path();
        let text = lanes(&arrows, &participants(&arrows), 22);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("KubeCtl") && lines[1].trim() == "containerd v2.4.2", "{text}");
        assert!(lines.iter().any(|line| line.contains("─ RunPodSandbox ─")), "{text}");
        let long = lines.iter().position(|line| line.contains("POST /api")).unwrap();
        assert!(lines[long + 1].contains("─▶"), "{text}");
        assert!(lines.iter().any(|line| line.contains("◀╌ 201 (2.0 ms) ╌")), "{text}");
        let long = lines.iter().position(|line| line.contains("sandbox 1 (5.0 ms)")).unwrap();
        assert!(lines[long + 1].contains("◀╌"), "{text}");
        let mut late = arrows;
        late[4].to = "ContainerRuntime".to_owned();
        late[4].what = "a note that is longer than what is left beside its lane".to_owned();
        let names = participants(&late);
        let text = lanes(&late, &names, 22);
        assert!(text.contains("beside its lane ◆"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 12 + 22 * names.len()), "{text}");
    }
}
