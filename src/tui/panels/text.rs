//! The lesson's page: title, text, and where to turn.

use crate::tui::layout::{Class, Layout};
use crate::tui::lesson::{self, LINE, Page};
use crate::tui::model::{Model, Pane};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// The pane's title on a screen where the page's title stands within; else the page's title.
#[must_use]
pub fn title(model: &Model, ruled: bool) -> String {
    if !ruled {
        return "Lesson".to_owned();
    }
    let page = page(model).map_or("", |page| page.title.as_str());
    format!("Lesson {}/{}  {page}", model.lesson.page + 1, model.lesson.document.pages.len())
}

/// The page from its scrolled line on. The last line says where in the lesson it is.
pub fn draw(model: &Model, ruled: bool, pen: &mut Pen<'_>) {
    let Some(page) = page(model) else { return };
    let pages = model.lesson.document.pages.len();
    let mut y = 0;
    if !ruled {
        let x = pen.say(1, 1, &format!("STEP {}/{pages}  ", model.lesson.page + 1), Role::Quiet);
        pen.say(x, 1, &page.title, Role::Strong);
        y = 3;
    }
    let foot = u16::from(!ruled && pages > 1) * 2;
    let bottom = pen.height().saturating_sub(foot);
    let indent = u16::from(!ruled);
    let lines = lines(model, page, pen.width().saturating_sub(2 * indent));
    for line in lines.iter().skip(model.lesson.scroll) {
        if y >= bottom {
            pen.say_right(0, bottom.saturating_sub(1), 0, "v", Role::Strong);
            break;
        }
        self::line(line, indent, y, pen);
        y += 1;
    }
    if foot > 0 {
        let last = pen.height().saturating_sub(1);
        pen.say(1, last, "] next  [ previous", Role::Quiet);
        pen.say_right(22, last, 1, &format!("page {} of {pages}", model.lesson.page + 1), Role::Quiet);
    }
}

/// One line of words.
pub fn line(words: &[lesson::Word], x: u16, y: u16, pen: &mut Pen<'_>) {
    let mut x = x;
    for (index, word) in words.iter().enumerate() {
        if index > 0 && !word.glued {
            x += 1;
        }
        x = pen.say(x, y, &word.text, word.role);
    }
}

/// How many lines can be scrolled away.
#[must_use]
pub fn lines_below(model: &Model) -> usize {
    let layout = Layout::of(model);
    let Some(placed) = layout.panes.iter().find(|placed| placed.pane == Pane::Text) else { return 0 };
    let Some(page) = page(model) else { return 0 };
    let inside = placed.inside();
    let (indent, around) = if placed.ruled { (0, 0) } else { (1, 5) };
    let lines = lines(model, page, inside.width.saturating_sub(2 * indent)).len();
    lines.saturating_sub(usize::from(inside.height.saturating_sub(around)))
}

/// The page as plain text.
#[must_use]
pub fn page_text(model: &Model) -> String {
    let Some(page) = page(model) else { return String::new() };
    let lines = lines(model, page, LINE);
    let body: Vec<String> = lines.iter().map(|line| lesson::plain(line).trim_end().to_owned()).collect();
    format!("{}\n\n{}\n", page.title, body.join("\n"))
}

fn page(model: &Model) -> Option<&Page> {
    model.lesson.document.pages.get(model.lesson.page)
}

/// Lines are never longer than 48 columns beside a picture; below one they may take the width.
fn lines(model: &Model, page: &Page, width: u16) -> Vec<lesson::Line> {
    let longest = if Class::of(model.size) >= Class::Large { LINE } else { 76 };
    page.lines(width.min(longest), model.lesson.answered.contains(&model.lesson.page))
}
