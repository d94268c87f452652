//! Why a checkpoint cannot be used.

use crate::scenario::Problems;

/// Why a checkpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It is none, or nobody can tell what it is.
    Unreadable(Problems),
    /// It says what it is, and its contents are something else.
    Damaged(Problems),
}

impl Broken {
    /// What is wrong.
    #[must_use]
    pub fn problems(&self) -> &Problems {
        match self {
            Self::Unreadable(problems) | Self::Damaged(problems) => problems,
        }
    }

    /// What is wrong.
    #[must_use]
    pub fn into_problems(self) -> Problems {
        match self {
            Self::Unreadable(problems) | Self::Damaged(problems) => problems,
        }
    }
}
