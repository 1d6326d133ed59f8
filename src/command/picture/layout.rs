//! Places boxes in columns, from left to right along the edges, with the crate rust-sugiyama.

use std::collections::HashSet;

use rust_sugiyama::configure::Config;
use rust_sugiyama::from_vertices_and_edges;

/// The space between two boxes.
const GAP: f64 = 14.0;

/// The additional space between two columns, for the curves.
const COLUMN_GAP: f64 = 24.0;

/// Parts of the graph that no edge connects are placed side by side up to this width.
const MAX_WIDTH: f64 = 1400.0;

/// The width and height of a box.
pub type Size = (f64, f64);

/// The centre of a box.
pub type Point = (f64, f64);

pub struct Layout {
    /// The centres of the boxes.
    pub points: Vec<Point>,
    /// The points of each edge, from the side of its first box to the side of its last box.
    pub routes: Vec<Vec<Point>>,
    pub size: Size,
}

/// Places the boxes. No edge connects a box with itself.
pub fn place(boxes: &[Size], edges: &[(usize, usize)]) -> Layout {
    let first = Placed::new(boxes, edges);
    // The crate places no edge around a box. So the second run has an empty box in each column
    // that an edge crosses.
    let mut all_boxes = boxes.to_vec();
    let mut steps = Vec::new();
    let mut paths = Vec::new();
    for &(from, to) in edges {
        let (start, end) = (first.columns[from], first.columns[to]);
        let (left, right) = if start <= end { (from, to) } else { (to, from) };
        let mut path = vec![left];
        for _ in 1..start.abs_diff(end) {
            path.push(all_boxes.len());
            all_boxes.push((1.0, 1.0));
        }
        path.push(right);
        steps.extend(path.windows(2).map(|pair| (pair[0], pair[1])));
        if left != from {
            path.reverse();
        }
        paths.push(path);
    }
    let Placed { mut points, size, .. } = Placed::new(&all_boxes, &steps);
    let side = |index: usize, next: usize| {
        let ((x, y), half) = (points[index], boxes[index].0 / 2.0);
        (if points[next].0 > x { x + half } else { x - half }, y)
    };
    let route = |path: &Vec<usize>| {
        let mut route: Vec<Point> = path.iter().map(|index| points[*index]).collect();
        let last = path.len() - 1;
        route[0] = side(path[0], path[1]);
        route[last] = side(path[last], path[last - 1]);
        route
    };
    let routes = paths.iter().map(route).collect();
    points.truncate(boxes.len());
    Layout { points, routes, size }
}

struct Placed {
    points: Vec<Point>,
    /// The column of each box within its part of the graph.
    columns: Vec<usize>,
    size: Size,
}

impl Placed {
    fn new(boxes: &[Size], edges: &[(usize, usize)]) -> Self {
        // The crate places rows from top to bottom. To get columns, x and y, and width and height,
        // are swapped.
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let vertices = boxes.iter().enumerate();
        let vertices: Vec<_> =
            vertices.map(|(i, (w, h))| (number(i), (*h, *w + COLUMN_GAP))).collect();
        // The crate does not end if two edges connect the same boxes.
        let mut known = HashSet::new();
        let edges = edges.iter().filter(|(a, b)| known.insert((a.min(b), a.max(b))));
        let edges: Vec<_> = edges.map(|(a, b)| (number(*a), number(*b))).collect();
        // `transpose` takes minutes in a large graph.
        let config = Config { vertex_spacing: GAP, transpose: false, ..Config::default() };
        let mut placed = Self {
            points: vec![(0.0, 0.0); boxes.len()],
            columns: vec![0; boxes.len()],
            size: (0.0, 0.0),
        };
        // The left and top side of the next part, and the bottom of the parts in this row.
        let (mut left, mut top, mut bottom) = (0.0, 0.0, 0.0f64);
        for (part, ..) in from_vertices_and_edges(&vertices, &edges, &config) {
            let (mut min, mut max) = ((f64::MAX, f64::MAX), (f64::MIN, f64::MIN));
            for (index, (y, x)) in &part {
                let (width, height) = boxes[*index];
                min = (min.0.min(x - width / 2.0), min.1.min(y - height / 2.0));
                max = (max.0.max(x + width / 2.0), max.1.max(y + height / 2.0));
            }
            let (width, height) = (max.0 - min.0, max.1 - min.1);
            if left > 0.0 && left + width > MAX_WIDTH {
                (left, top) = (0.0, bottom + GAP);
            }
            let mut xs: Vec<f64> = part.iter().map(|(_, (_, x))| *x).collect();
            xs.sort_by(f64::total_cmp);
            xs.dedup();
            for (index, (y, x)) in &part {
                placed.points[*index] = (left + x - min.0, top + y - min.1);
                placed.columns[*index] = xs.partition_point(|other| other < x);
            }
            placed.size.0 = placed.size.0.max(left + width);
            bottom = bottom.max(top + height);
            left += width + GAP;
        }
        placed.size.1 = bottom;
        placed
    }
}
