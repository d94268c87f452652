//! A page as lines of a given width, laid out as the screen does.

use ranklab::teach::page::plain;
use ranklab::teach::{Block, Page, Word};

/// The lines of `page` below its title.
pub fn lines(page: &Page, width: usize, answered: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for block in &page.blocks {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        match block {
            Block::Paragraph(text) => wrap(&mut lines, text, width, "", ""),
            Block::List(items) => {
                for item in items {
                    let rest = " ".repeat(item.mark.len() + 1);
                    wrap(&mut lines, &item.text, width, &format!("{} ", item.mark), &rest);
                }
            }
            Block::Code(code) => lines.extend(code.iter().map(|line| format!("  {line}"))),
            Block::Table { head, rows } => table(&mut lines, head, rows),
            Block::Look(texts) => paragraphs(&mut lines, texts, width, "LOOK "),
            Block::Try { text, .. } => paragraphs(&mut lines, text, width, "TRY  "),
            Block::Ask { question, answer } => {
                paragraphs(&mut lines, question, width, "ASK  ");
                if answered {
                    lines.push(String::new());
                    paragraphs(&mut lines, answer, width, "     ");
                } else {
                    lines.push("     (Enter shows the answer)".to_owned());
                }
            }
        }
    }
    lines
}

fn paragraphs(lines: &mut Vec<String>, texts: &[Vec<Word>], width: usize, first: &str) {
    let rest = " ".repeat(first.len());
    for (index, text) in texts.iter().enumerate() {
        wrap(lines, text, width, if index == 0 { first } else { &rest }, &rest);
    }
}

fn wrap(lines: &mut Vec<String>, text: &[Word], width: usize, first: &str, rest: &str) {
    let mut line = first.to_owned();
    let mut begins = true;
    for unit in text.chunk_by(|_, next| next.glued) {
        let unit = plain(unit);
        if !begins && line.chars().count() + 1 + unit.chars().count() > width {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
        } else if !begins {
            line.push(' ');
        }
        line.push_str(&unit);
        begins = false;
    }
    lines.push(line);
}

/// Columns as wide as their widest cell, two blanks between them.
fn table(lines: &mut Vec<String>, head: &[Vec<Word>], rows: &[Vec<Vec<Word>>]) {
    let cells: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows.iter().map(Vec::as_slice))
        .map(|row| row.iter().map(|cell| plain(cell)).collect())
        .collect();
    let widths: Vec<usize> =
        (0..head.len()).map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in cells {
        let padded: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        lines.push(padded.join("  "));
    }
}
