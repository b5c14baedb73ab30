//! Plays in which the scheduler itself is the one that fails: killed between any two of its steps, or decided by a node that
//! is no longer what it was.

use super::*;

impl Play {
    /// The scheduler is killed, whatever it was at, and another one starts: it knows what the API server lists.
    fn kill(&mut self) {
        let state = State::new(self.api.client(), &Configuration::default());
        // Dropped: what was decided is forgotten, what was under way is not sent, what was sent has no answer.
        drop(std::mem::replace(&mut self.state, state));
        self.state.unsynced.clear();
        self.state.unsynced.extend(["pods", "nodes"]);
        let mut objects = self.api.objects();
        objects.news.clear();
        let listed = |all: Vec<Value>, news: fn(Seen<Value>) -> News| {
            let items = all.into_iter().map(Seen::InitApply);
            [Seen::Init].into_iter().chain(items).chain([Seen::InitDone]).map(news).collect::<Vec<_>>()
        };
        let nodes = listed(objects.nodes.values().cloned().collect(), News::Node);
        let pods = listed(objects.pods.values().cloned().collect(), News::Pod);
        objects.news.extend(nodes.into_iter().chain(pods));
    }
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}})
}

fn asking(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}, "status": {}})
}

/// Killed after so many answers, with each way in which requests can be under way by then: no pod is lost or bound twice, and
/// what is bound counts, whoever bound it.
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_killed_between_any_two_steps_loses_no_pod_and_binds_none_twice() {
    for mood in [Mood::Well, Mood::Slow, Mood::Mute, Mood::Conflict, Mood::Away] {
        for answers in 0..8 {
            let mut play = Play::new(7);
            for name in ["n0", "n1"] {
                play.api.objects().put_node(name, node(name, "2000m"));
            }
            play.api.objects().mood = mood;
            // Four of them have room, whoever decides.
            for at in 0..6 {
                let name = format!("p{at}");
                play.api.objects().put_pod(&name, asking(&name, "1000m"));
            }
            play.log(format!("{mood:?}, killed after {answers} answers"));
            play.hear(usize::MAX);
            play.state.decide_all();
            assert_eq!(play.state.bindings.len(), 4, "assumed and not sent");
            play.answers(answers).await;
            play.kill();
            play.api.objects().mood = Mood::Well;
            play.settle().await;
            play.check();
            let most = HashMap::from([("n0".to_owned(), 2000), ("n1".to_owned(), 2000)]);
            play.check_bindings(&most);
            assert_eq!(play.api.objects().bound.len(), 4, "all that fit are bound\n{}", play.story());
            play.flush().await;
            play.check_bindings(&most);
        }
    }
}

/// As often as can be, amid everything that happens to pods and nodes.
#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_killed_again_and_again_loses_nothing() {
    let mut kills = 0;
    for seed in 2000..2000 + PLAYS / 3 {
        let mut play = Play::new(seed);
        let mut largest = HashMap::new();
        play.api.objects().lingering = seed % 2 == 0;
        for _ in 0..STEPS {
            play.happen(&mut largest).await;
            let moods = [Mood::Well, Mood::Well, Mood::Slow, Mood::Mute];
            let mood = moods[play.throw(moods.len())];
            play.api.objects().mood = mood;
            let most = play.throw(6);
            play.hear(most);
            play.state.next_wake();
            play.state.decide_all();
            let most = play.throw(3);
            play.answers(most).await;
            if play.throw(4) == 0 {
                play.log("killed".to_owned());
                play.kill();
                kills += 1;
            }
            play.check_bindings(&largest);
        }
        play.api.objects().mood = Mood::Well;
        play.settle().await;
        play.flush().await;
        play.check();
        play.check_bindings(&largest);
    }
    assert!(kills > 100, "{kills}");
}

/// A node shrinks below what is on its way to it: what was decided arrives, and nobody else comes before there is room.
#[tokio::test(start_paused = true)]
async fn a_node_that_shrinks_while_pods_are_on_their_way_is_given_no_more() {
    let mut play = Play::new(8);
    play.api.objects().put_node("n0", node("n0", "4000m"));
    play.api.objects().mood = Mood::Slow;
    for at in 0..3 {
        let name = format!("p{at}");
        play.api.objects().put_pod(&name, asking(&name, "1000m"));
    }
    play.hear(usize::MAX);
    play.state.decide_all();
    assert_eq!(play.state.bindings.len(), 3, "all are on their way");
    play.api.objects().put_node("n0", node("n0", "2000m"));
    play.api.objects().put_pod("late", asking("late", "500m"));
    play.settle().await;
    let bound = |play: &Play| play.api.objects().bound.iter().map(|(uid, _)| uid.clone()).collect::<Vec<_>>();
    assert_eq!(bound(&play), ["p0", "p1", "p2"], "the late one would have had room before");
    play.check();
    play.api.objects().delete("p0");
    play.settle().await;
    assert_eq!(bound(&play).len(), 3, "as much is used as there is");
    play.api.objects().delete("p1");
    play.settle().await;
    assert_eq!(bound(&play).last().map(String::as_str), Some("late"));
    play.check();
    play.check_bindings(&HashMap::from([("n0".to_owned(), 2000)]));
}
