//! `./fermata prove --model [SIZE]`: explores every scene and prints the results.

use model::explore::{explore, Exploration};
use model::scenes;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let deeper: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let only = arguments.next();
    println!("{:12} {:>10} {:>12} {:>6} {:>8}", "scene", "states", "steps", "depth", "seconds");
    let mut broken = false;
    for scene in scenes::all() {
        if only.as_ref().is_some_and(|only| only != scene.name) {
            continue;
        }
        let (name, depth) = (scene.name, scene.depth + deeper);
        let report = explore(Exploration::new(scene, None, depth));
        println!(
            "{name:12} {:>10} {:>12} {:>6} {:>8.1}{}",
            report.states,
            report.steps,
            report.depth,
            report.time.as_secs_f64(),
            if report.all { "  all states" } else { "" },
        );
        for (property, trace) in &report.found {
            broken = true;
            println!("\nbroken: {property}\n{trace}");
        }
    }
    ExitCode::from(u8::from(broken))
}
