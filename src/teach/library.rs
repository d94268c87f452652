//! All lessons: those that ship with ranklab, and the learner's own. One is found by its number, its name, or the start of its name.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use include_dir::{Dir, include_dir};

use super::lesson::{Folder, Lesson, Origin, ScenarioText};
use super::problem::Problem;
use crate::base::words::nearest;
use crate::scenario::with_sheet;

static LESSONS: Dir = include_dir!("$CARGO_MANIFEST_DIR/lessons");
static SCENARIOS: Dir = include_dir!("$CARGO_MANIFEST_DIR/scenarios");

/// The variable that names the folder of the learner's own lessons.
pub const VARIABLE: &str = "RANKLAB_LESSONS";

/// No file of a lesson is larger.
const MOST_BYTES: u64 = 1 << 20;

/// Lessons in the order of their numbers, and those that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Library {
    lessons: Vec<Lesson>,
    broken: Vec<Broken>,
}

/// A lesson that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its folder's name.
    pub name: String,
    /// What is wrong with it, at least one problem.
    pub problems: Vec<Problem>,
}

/// Why no lesson was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is none of this name.
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The name that is most like it.
        nearest: Option<String>,
    },
    /// Several fit.
    Several {
        /// What was asked for.
        wanted: String,
        /// Their names.
        names: Vec<String>,
    },
    /// There is one, and it could not be read.
    Broken(Broken),
}

/// The scenarios that ship with ranklab beside the lessons, by name.
pub fn scenarios() -> impl Iterator<Item = ScenarioText> {
    SCENARIOS.files().filter_map(|file| {
        let name = file.path().file_name()?.to_str()?;
        Some(ScenarioText { name: name.to_owned(), text: file.contents_utf8()?.to_owned() })
    })
}

/// The name of the scenario beside the lessons that `wanted` was probably meant to be.
#[must_use]
pub fn nearest_scenario(wanted: &str) -> Option<String> {
    let names: Vec<String> = scenarios().filter_map(|scenario| scenario.name.strip_suffix(".toml").map(str::to_owned)).collect();
    nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned)
}

/// The folder of the learner's own lessons: what `RANKLAB_LESSONS` names, otherwise `ranklab/lessons` among the user's data.
#[must_use]
pub fn user_folder() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    named.or_else(|| etcetera::choose_base_strategy().ok().map(|dirs| dirs.data_dir().join("ranklab/lessons")))
}

impl Library {
    /// The lessons that ship with ranklab and those in the learner's folder, if there is one.
    #[must_use]
    pub fn open() -> Self {
        let library = Self::shipped();
        match user_folder() {
            Some(folder) if folder.exists() || std::env::var_os(VARIABLE).is_some_and(|path| !path.is_empty()) => {
                library.with_folder(&folder)
            }
            _ => library,
        }
    }

    /// The lessons that ship with ranklab.
    #[must_use]
    pub fn shipped() -> Self {
        let mut library = Self::default();
        LESSONS.dirs().for_each(|dir| library.add(shipped(dir)));
        library.sort();
        library
    }

    /// The same with the lessons in `folder`, one in each of its folders. A name that is taken is a problem: nothing is hidden.
    #[must_use]
    pub fn with_folder(mut self, folder: &Path) -> Self {
        match subfolders(folder) {
            Ok(paths) => paths.iter().for_each(|path| self.add_own(path)),
            Err(error) => {
                let name = folder.display().to_string();
                let problem = Problem::new(&name, 0, format!("cannot read this folder of lessons: {error}"));
                self.broken.push(Broken { name, problems: vec![problem] });
            }
        }
        self.sort();
        self
    }

    /// The lessons, in the order of their numbers.
    #[must_use]
    pub fn lessons(&self) -> &[Lesson] {
        &self.lessons
    }

    /// What could not be read.
    #[must_use]
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// The lesson with this number, this name, or the only one whose name starts so (with or without its number). A number is a number
    /// alone, and never the start of others.
    ///
    /// # Errors
    /// If there is none, with the nearest name; if there are several; if it could not be read.
    pub fn find(&self, wanted: &str) -> Result<&Lesson, NotFound> {
        let number = wanted.parse::<u32>().ok();
        let lower = wanted.to_lowercase();
        let starts = |lesson: &Lesson| {
            number.is_none() && !lower.is_empty() && (lesson.name.starts_with(&lower) || slug(&lesson.name).starts_with(&lower))
        };
        let tests: [&dyn Fn(&Lesson) -> bool; 4] = [
            &|lesson| lesson.name == wanted,
            &|lesson| number == Some(lesson.number),
            &|lesson| slug(&lesson.name) == lower,
            &starts,
        ];
        for fits in tests {
            let found: Vec<&Lesson> = self.lessons.iter().filter(|lesson| fits(lesson)).collect();
            match found.as_slice() {
                [] => {}
                [lesson] => return Ok(lesson),
                several => {
                    let names = several.iter().map(|lesson| lesson.name.clone()).collect();
                    return Err(NotFound::Several { wanted: wanted.to_owned(), names });
                }
            }
        }
        let fits = |broken: &&Broken| match number {
            Some(_) => broken.name.split('-').next().and_then(|digits| digits.parse().ok()) == number,
            None => broken.name == wanted || (!lower.is_empty() && broken.name.starts_with(&lower)),
        };
        if let Some(broken) = self.broken.iter().find(fits) {
            return Err(NotFound::Broken(broken.clone()));
        }
        Err(NotFound::Unknown { wanted: wanted.to_owned(), nearest: if number.is_some() { None } else { self.nearest(&lower) } })
    }

    fn nearest(&self, lower: &str) -> Option<String> {
        let likeness = |lesson: &Lesson| {
            let names = [lesson.name.as_str(), slug(&lesson.name), &lesson.title.to_lowercase()];
            names.map(|name| strsim::jaro_winkler(name, lower)).into_iter().fold(0.0, f64::max)
        };
        let best = self.lessons.iter().map(|lesson| (likeness(lesson), lesson)).max_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|(likeness, _)| *likeness > 0.7).map(|(_, lesson)| lesson.name.clone())
    }

    fn add(&mut self, folder: Folder) {
        let name = folder.name.clone();
        match Lesson::parse(folder) {
            Ok(lesson) => self.lessons.push(lesson),
            Err(problems) => self.broken.push(Broken { name, problems }),
        }
    }

    fn add_own(&mut self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let taken = self.lessons.iter().any(|lesson| lesson.name == name);
        if taken {
            let problem = Problem::new(&path.display().to_string(), 0, format!("there is a lesson `{name}` already"));
            self.broken.push(Broken { name, problems: vec![problem.hint("rename the folder")] });
            return;
        }
        match own(path, &name) {
            Ok(folder) => self.add(folder),
            Err(problem) => self.broken.push(Broken { name, problems: vec![problem] }),
        }
    }

    fn sort(&mut self) {
        self.lessons.sort_by(|a, b| (a.number, &a.name).cmp(&(b.number, &b.name)));
    }
}

/// A folder's name without its number: `1f1b` of `11-1f1b`.
fn slug(name: &str) -> &str {
    name.split_once('-').map_or(name, |(_, slug)| slug)
}

fn shipped(dir: &Dir) -> Folder {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = |name: &str| dir.get_file(dir.path().join(name)).and_then(include_dir::File::contents_utf8).unwrap_or_default();
    let files: Vec<ScenarioText> =
        dir.files().map(|file| name(file.path())).map(|name| ScenarioText { text: text(&name).to_owned(), name }).collect();
    let scenarios = with_sheets(files);
    Folder { name: name(dir.path()), origin: Origin::Shipped, lesson: text("lesson.md").to_owned(), scenarios }
}

fn own(path: &Path, name: &str) -> Result<Folder, Problem> {
    let lesson = read(path, name, "lesson.md")?;
    let mut files = Vec::new();
    for entry in names(path).map_err(|error| Problem::new(name, 0, format!("cannot read this folder: {error}")))? {
        if ends_in(&entry, "toml") || ends_in(&entry, "csv") {
            files.push(ScenarioText { text: read(path, name, &entry)?, name: entry });
        }
    }
    Ok(Folder { name: name.to_owned(), origin: Origin::Folder(path.to_owned()), lesson, scenarios: with_sheets(files) })
}

/// The scenarios among a lesson's files. A sheet that one names stands in it: a scenario goes where its folder does not.
fn with_sheets(files: Vec<ScenarioText>) -> Vec<ScenarioText> {
    let (scenarios, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| ends_in(&file.name, "toml"));
    let find = |name: &str| others.iter().find(|file| file.name == name && ends_in(name, "csv")).map(|file| file.text.clone());
    let whole = |scenario: ScenarioText| ScenarioText { text: with_sheet(&scenario.text, find), ..scenario };
    scenarios.into_iter().map(whole).collect()
}

fn ends_in(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

/// The folders in `folder`, by name; hidden ones are no lessons.
fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = names(folder)?.into_iter().filter(|name| !name.starts_with('.')).map(|name| folder.join(name));
    Ok(paths.filter(|path| path.is_dir()).collect())
}

/// The names of all entries, in order.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names = entries.collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Reads a file of a lesson; one byte more than allowed at most.
fn read(folder: &Path, lesson: &str, name: &str) -> Result<String, Problem> {
    let problem = |message: String| Problem::new(&format!("{lesson}/{name}"), 0, message);
    let mut bytes = Vec::new();
    let path = folder.join(name);
    let metadata = fs::metadata(&path).map_err(|error| problem(format!("cannot read it: {error}")))?;
    if !metadata.is_file() {
        return Err(problem("it is no file".to_owned()));
    }
    let file = File::open(path).map_err(|error| problem(format!("cannot read it: {error}")))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| problem(format!("cannot read it: {error}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(problem("it is too large for a lesson".to_owned()).hint("at most 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| problem("it is not UTF-8 text".to_owned()).hint("save it as UTF-8"))
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { wanted, nearest: Some(nearest) } => {
                write!(f, "there is no lesson `{wanted}`: did you mean `{nearest}`?")
            }
            Self::Unknown { wanted, nearest: None } => write!(f, "there is no lesson `{wanted}`: `ranklab list` shows all"),
            Self::Several { wanted, names } => write!(f, "`{wanted}` could be any of {}", names.join(", ")),
            Self::Broken(broken) => {
                write!(f, "the lesson `{}` cannot be read:", broken.name)?;
                broken.problems.iter().try_for_each(|problem| write!(f, "\n{problem}"))
            }
        }
    }
}

impl std::error::Error for NotFound {}
