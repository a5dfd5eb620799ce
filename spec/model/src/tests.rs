//! The specification as it is breaks no property; with a rule broken, the exploration finds the violation.

use crate::explore::{explore, Exploration, Report};
use crate::plant::Plant;
use crate::scene::Scene;
use crate::scenes;

/// Explores a scene as deep as a test run does.
fn holds(scene: Scene, states: usize) {
    let (name, depth) = (scene.name, scene.depth);
    let report = explore(Exploration::new(scene, None, depth));
    print(name, &report);
    if let Some((property, trace)) = report.found.first() {
        panic!("{name}: broken: {property}\n{trace}");
    }
    assert!(report.states >= states, "{name}: only {} states", report.states);
}

fn print(name: &str, report: &Report) {
    println!(
        "note {name}: {} states, {} steps, depth {}{}, {:.1} s",
        report.states,
        report.steps,
        report.depth,
        if report.all { " (all there are)" } else { "" },
        report.time.as_secs_f64()
    );
}

/// With the rule broken, the property is among the first that are found broken, within so many moves.
fn finds(scene: Scene, plant: Plant, property: &str, moves: usize) {
    let name = scene.name;
    let report = explore(Exploration::new(scene, Some(plant), moves));
    print(name, &report);
    let Some((_, trace)) = report.found.iter().find(|(found, _)| *found == property) else {
        panic!("{plant:?} is not found in {name}, but {:?}", report.found);
    };
    assert_eq!(trace.lines().count(), moves, "{plant:?}:\n{trace}");
}

#[test]
fn the_rules_hold_beside_a_manager() {
    holds(scenes::manager(), 100_000);
}

#[test]
fn the_rules_hold_beside_a_keeper() {
    holds(scenes::exception(), 20_000);
}

#[test]
fn the_rules_hold_when_threads_are_cut() {
    holds(scenes::cut(), 500);
}

#[test]
fn the_rules_hold_for_what_is_held() {
    holds(scenes::held(), 10_000);
}

#[test]
fn a_quota_that_was_not_given_is_found() {
    finds(scenes::held(), Plant::AnybodyGives, "nobody pays for what others do", 1);
}

#[test]
fn a_manager_that_waits_is_found() {
    finds(scenes::manager(), Plant::ManagerWaits, "a manager's call returns", 2);
}

#[test]
fn a_server_that_takes_over_an_exception_is_found() {
    let property = "an exception is answered by its keeper or by nobody";
    finds(scenes::exception(), Plant::TakesOver, property, 10);
}

#[test]
fn a_wake_up_that_is_forgotten_is_found() {
    let mut scene = scenes::manager();
    scene.calls = |call| call.name().starts_with("mutex");
    finds(scene, Plant::ForgetsToWake, "no wake-up is lost", 3);
}

#[test]
fn an_interrupt_that_is_dropped_is_found() {
    finds(scenes::manager(), Plant::DropsInterrupt, "no interrupt is lost", 2);
}

#[test]
fn a_state_that_is_not_complete_is_found() {
    let property = "a stopped thread's state is complete";
    finds(scenes::manager(), Plant::ForgetsPending, property, 2);
}

#[test]
fn a_reference_that_was_not_given_is_found() {
    finds(scenes::manager(), Plant::Leaks, "nobody reaches what was not given", 1);
}

#[test]
fn a_reply_of_a_stranger_is_found() {
    let property = "a frame is written by whom it calls";
    finds(scenes::exception(), Plant::RepliesForAnother, property, 3);
}

#[test]
fn a_priority_that_was_not_allowed_is_found() {
    let property = "nobody is more important than was allowed";
    finds(scenes::manager(), Plant::IgnoresCeiling, property, 1);
}

#[test]
fn work_without_a_bound_is_found() {
    let property = "work on what is others' is bounded";
    finds(scenes::exception(), Plant::WakesEverybody, property, 4);
}
