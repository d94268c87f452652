//! A route: the links that a flow crosses, and how often. A message crosses two; a collective that is one operation crosses every link
//! between its members at once.

use std::ops::{Deref, DerefMut};

/// A link of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Crossing {
    pub link: u32,
    /// How often the flow crosses it: so many times its rate is what the link carries of it.
    pub times: u32,
}

/// One thing for each link of a route. There are many more messages than collectives, and theirs stands in place.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Each<T> {
    Two([T; 2]),
    Many(Box<[T]>),
}

/// The links of a route.
pub(in crate::engine) type Route = Each<Crossing>;

impl Route {
    /// A route over all these links, which may come several times.
    pub fn over(mut links: Vec<u32>) -> Self {
        links.sort_unstable();
        let same = links.chunk_by(|a, b| a == b);
        Self::Many(same.map(|same| Crossing { link: same[0], times: u32::try_from(same.len()).unwrap_or(u32::MAX) }).collect())
    }

    /// A message's route over two links.
    pub fn message([out, into]: [u32; 2]) -> Self {
        Self::Two([out, into].map(|link| Crossing { link, times: 1 }))
    }

    /// A message's other link.
    pub fn other(&self, link: u32) -> Option<u32> {
        match self {
            Self::Two([a, b]) => Some(if a.link == link { b.link } else { a.link }),
            Self::Many(_) => None,
        }
    }
}

impl<T> Each<T> {
    /// A thing for each link of a route.
    pub fn like<U>(route: &Each<U>, thing: T) -> Self
    where
        T: Copy,
    {
        match route {
            Each::Two(_) => Self::Two([thing; 2]),
            Each::Many(links) => Self::Many(vec![thing; links.len()].into()),
        }
    }
}

impl<T> Deref for Each<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Two(two) => two,
            Self::Many(many) => many,
        }
    }
}

impl<T> DerefMut for Each<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Two(two) => two,
            Self::Many(many) => many,
        }
    }
}
