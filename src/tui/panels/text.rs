//! The lesson's page: title, text, and where to turn.

use crate::tui::layout::{Class, Layout};
use crate::tui::lesson::{self, LINE, Laid, lay, plain_line};
use crate::tui::model::{Model, Pane};
use crate::tui::pen::Pen;
use crate::tui::theme::Role;

/// The pane's title on a screen where the page's title stands within; else the page's title.
#[must_use]
pub fn title(model: &Model, ruled: bool) -> String {
    match model.lesson.page() {
        Some(page) if ruled => {
            let below = if lines_below(model) > model.lesson.scroll { format!("  {}", more(model)) } else { String::new() };
            format!("Lesson {}/{}  {}{below}", model.lesson.page + 1, model.lesson.lesson.pages.len(), page.title)
        }
        _ => "Lesson".to_owned(),
    }
}

/// The page from its scrolled line on. The last line says where in the lesson it is.
pub fn draw(model: &Model, ruled: bool, pen: &mut Pen<'_>) {
    let Some(page) = model.lesson.page() else { return own_scenario(pen) };
    let pages = model.lesson.lesson.pages.len();
    let mut y = 0;
    if !ruled {
        let x = pen.say(1, 1, &format!("STEP {}/{pages}  ", model.lesson.page + 1), Role::Quiet);
        pen.say(x, 1, &page.title, Role::Strong);
        y = 3;
    }
    let foot = u16::from(!ruled && pages > 1) * 2;
    let bottom = pen.height().saturating_sub(foot);
    let indent = u16::from(!ruled);
    let lines = laid(model, pen.width().saturating_sub(2 * indent)).lines;
    for line in lines.iter().skip(model.lesson.scroll) {
        if y >= bottom {
            if foot > 0 {
                pen.say_right(0, bottom, 1, more(model), Role::Strong);
            } else if !ruled {
                pen.say_right(0, bottom.saturating_sub(1), 0, "v", Role::Strong);
            }
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

/// What leads to the lines below.
fn more(model: &Model) -> &'static str {
    let reads = Layout::of(model).focused(model).is_some_and(|placed| placed.pane == Pane::Text);
    if reads { "v more: j" } else { "v more: Tab, then j" }
}

/// In place of a lesson, for a scenario of the learner's own.
fn own_scenario(pen: &mut Pen<'_>) {
    const TEXT: &str = "A scenario without a lesson. Keys 2 to 7 show its run; o turns its knobs, and :save-scenario writes them \
                        to a new file; e exports the run.";
    for (y, line) in (1..pen.height()).zip(lesson::text_lines(TEXT, pen.width().saturating_sub(2).min(LINE), Role::Text)) {
        self::line(&line, 1, y, pen);
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
    let Some((laid, height)) = shown(model) else { return 0 };
    laid.lines.len().saturating_sub(height)
}

/// The scroll at which what was done last is seen to its end, no further than needed from the present one.
#[must_use]
pub fn scroll_to_done(model: &Model) -> usize {
    let Some((laid, height)) = shown(model) else { return 0 };
    let least = (laid.reached + 1).saturating_sub(height);
    model.lesson.scroll.max(least).min(laid.lines.len().saturating_sub(height))
}

/// The scroll at which what Enter would do next is seen, no further than needed from the present one: all of it if it fits, else its end,
/// where the value stands.
#[must_use]
pub fn scroll_to_next(model: &Model) -> usize {
    let Some((Laid { next, .. }, height)) = shown(model) else { return 0 };
    let least = next.end.saturating_sub(height);
    let most = if next.len() > height { next.end.saturating_sub(1) } else { next.start };
    model.lesson.scroll.clamp(least.min(most), most)
}

/// Whether the text is on the screen at all.
#[must_use]
pub fn is_seen(model: &Model) -> bool {
    shown(model).is_some_and(|(_, height)| height > 0)
}

/// Whether what Enter would do next stands on the screen: nothing runs and nothing is answered that was not read.
#[must_use]
pub fn next_is_seen(model: &Model) -> bool {
    is_seen(model) && scroll_to_next(model) == model.lesson.scroll
}

/// The page as it lies in its pane, and how many lines are seen at once.
fn shown(model: &Model) -> Option<(Laid, usize)> {
    let layout = Layout::of(model);
    let placed = layout.panes.iter().find(|placed| placed.pane == Pane::Text)?;
    let inside = placed.inside();
    let (indent, around) = if placed.ruled { (0, 0) } else { (1, 5) };
    let laid = laid(model, inside.width.saturating_sub(2 * indent));
    Some((laid, usize::from(inside.height.saturating_sub(around))))
}

/// The page as plain text.
#[must_use]
pub fn page_text(model: &Model) -> String {
    let Some(page) = model.lesson.page() else { return String::new() };
    let body: Vec<String> = laid(model, LINE).lines.iter().map(|line| plain_line(line).trim_end().to_owned()).collect();
    format!("{}\n\n{}\n", page.title, body.join("\n"))
}

/// Lines are never longer than 48 columns beside a picture; below one they may take the width.
fn laid(model: &Model, width: u16) -> Laid {
    let longest = if Class::of(model.size) >= Class::Large { LINE } else { 76 };
    let page = model.lesson.page();
    page.map(|page| lay(page, width.min(longest), model.lesson.taken())).unwrap_or_default()
}
