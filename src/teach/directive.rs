//! Comments that say what a page's picture shows: `<!-- stop: event 71 -->`, `<!-- scenario: star.toml -->`, `<!-- view: links -->`.

use super::page::View;
use super::stop::Stop;

/// What one comment says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Directive {
    /// Where the picture stands.
    Stop(Stop),
    /// Which scenario is run.
    Scenario(String),
    /// Which view opens.
    View(View),
}

/// What is wrong with a comment: the message, and what is allowed.
pub(super) type Wrong = (String, String);

/// The directives in a piece of HTML, which may hold nothing else.
pub(super) fn parse(html: &str) -> Result<Vec<Directive>, Wrong> {
    let mut directives = Vec::new();
    let mut rest = html.trim();
    while !rest.is_empty() {
        let comment = rest.strip_prefix("<!--").and_then(|rest| rest.split_once("-->"));
        let Some((comment, behind)) = comment else {
            return Err((
                "a lesson knows no HTML".to_owned(),
                "comments such as <!-- stop: end --> stand on lines of their own".to_owned(),
            ));
        };
        directives.push(one(comment.trim())?);
        rest = behind.trim_start();
    }
    Ok(directives)
}

fn one(comment: &str) -> Result<Directive, Wrong> {
    let (key, value) = comment.split_once(':').map_or((comment, ""), |(key, value)| (key.trim(), value.trim()));
    let wrong = |allowed: String| (format!("`{key}: {value}` means nothing"), allowed);
    match key {
        "stop" => Stop::parse(value).map(Directive::Stop).ok_or_else(|| wrong(Stop::ALLOWED.to_owned())),
        "view" => View::find(value).map(Directive::View).ok_or_else(|| wrong(View::ALL.map(|(_, name)| name).join(", "))),
        "scenario" => Ok(Directive::Scenario(value.to_owned())),
        _ => Err((format!("unknown comment `{comment}`"), "stop, scenario or view, such as <!-- stop: end -->".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read() {
        let both = parse("<!-- stop: end -->\n<!-- view:links --> <!-- scenario: star.toml -->\n");
        let expected =
            vec![Directive::Stop(Stop::End), Directive::View(View::Links), Directive::Scenario("star.toml".to_owned())];
        assert_eq!(both, Ok(expected));
        for wrong in ["<b>", "<!-- stop: end", "<!-- stop -->", "<!-- view: no -->", "<!-- a note -->", "<!-- stop: end --> text"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
