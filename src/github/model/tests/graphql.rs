//! GraphQL: the query of verification, and what the schema does not allow.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Garden, ORCHARD};

const VERIFICATION: &str = "
query($owner: String!, $name: String!, $number: Int!, $base: String!) {
  repository(owner: $owner, name: $name) {
    databaseId
    nameWithOwner
    issue(number: $number) {
      databaseId number title body state stateReason locked lastEditedAt updatedAt
      author { ...who }
      editor { ...who }
      labels(first: 50) { nodes { name } }
      assignees(first: 20) { nodes { login databaseId } }
      timelineItems(last: 50, itemTypes: [LABELED_EVENT, UNLABELED_EVENT, ASSIGNED_EVENT, CLOSED_EVENT]) {
        totalCount
        nodes {
          __typename
          ... on LabeledEvent { createdAt actor { ...who } label { name } }
          ... on AssignedEvent { createdAt assignee { __typename ... on User { databaseId } } }
          ... on ClosedEvent { createdAt actor { ...who } }
        }
      }
      comments(last: 2) {
        pageInfo { hasPreviousPage startCursor }
        nodes { databaseId body createdAt lastEditedAt isMinimized author { ...who } editor { ...who } }
      }
    }
    ref(qualifiedName: $base) { target { oid } }
  }
  rateLimit { cost remaining }
}
fragment who on Actor { __typename login ... on User { databaseId } ... on Bot { databaseId } }
";

async fn ask(garden: &Garden, token: &str, number: u64) -> Value {
    let variables = json!({
        "owner": "pear-garden", "name": "orchard", "number": number, "base": "refs/heads/main",
    });
    let body = json!({"query": VERIFICATION, "variables": variables});
    garden.call_as(token, Method::POST, "/graphql", body).await.expect(200)
}

#[tokio::test]
async fn verification_sees_the_issue_as_it_is() {
    let garden = Garden::new().await;
    let github = &garden.github;
    let mira = github.user("mira-holt");
    github.open_issue(ORCHARD, "mira-holt", "Leaves fall", "Early.");
    github.label((ORCHARD, 1), "mira-holt", "agent");
    github.assign((ORCHARD, 1), "mira-holt", "issuebox-model[bot]");
    github.edit_issue((ORCHARD, 1), "stranger", None, Some("Late."));
    for number in 0..3 {
        let id = github.comment((ORCHARD, 1), "mira-holt", &format!("Comment {number}"));
        if number == 2 {
            github.edit_comment(ORCHARD, id, "stranger", "Edited");
            github.minimize_comment(ORCHARD, id);
        }
    }
    let answer = ask(&garden, &garden.token, 1).await;
    assert_eq!(answer["errors"], Value::Null, "{answer}");
    let repository = &answer["data"]["repository"];
    let issue = &repository["issue"];
    assert_eq!((&issue["state"], &issue["body"]), (&json!("OPEN"), &json!("Late.")));
    assert_eq!(issue["editor"]["login"], "stranger");
    assert_eq!(
        issue["author"],
        json!({"__typename": "User", "login": "mira-holt", "databaseId": mira})
    );
    assert_eq!(issue["labels"], json!({"nodes": [{"name": "agent"}]}));
    assert_eq!(issue["assignees"]["nodes"][0]["login"], "issuebox-model", "without [bot]");
    let kinds: Vec<_> = issue["timelineItems"]["nodes"].as_array().into_iter().flatten().collect();
    let kinds: Vec<_> = kinds.iter().map(|node| node["__typename"].as_str()).collect();
    assert_eq!(kinds, [Some("LabeledEvent"), Some("AssignedEvent")], "other kinds are left out");
    assert_eq!(issue["timelineItems"]["nodes"][0]["actor"]["databaseId"], mira);
    let comments = &issue["comments"];
    assert_eq!(comments["pageInfo"], json!({"hasPreviousPage": true, "startCursor": "1"}));
    assert_eq!(comments["nodes"][1]["isMinimized"], true);
    assert_eq!(comments["nodes"][1]["editor"]["login"], "stranger");
    assert_eq!(comments["nodes"][0]["lastEditedAt"], Value::Null);
    assert_eq!(repository["ref"]["target"]["oid"], json!(github.tip(ORCHARD, "main")));
    let missing = ask(&garden, &garden.token, 9).await;
    assert_eq!(missing["errors"][0]["type"], "NOT_FOUND");
    assert_eq!(missing["data"]["repository"]["issue"], Value::Null);
    github.set_private(ORCHARD, true);
    let narrowed = garden.mint(json!({"permissions": {"issues": "read"}})).await;
    let partial = ask(&garden, &narrowed, 1).await;
    assert_eq!(partial["errors"][0]["type"], "FORBIDDEN", "the base's tip needs contents:read");
    assert_eq!(partial["data"]["repository"]["issue"]["number"], 1);
    garden.assert_clean();
}

#[tokio::test]
async fn the_schema_refuses_what_it_does_not_know() {
    let garden = Garden::new().await;
    let ask = async |query: &str| {
        let body = json!({"query": query});
        let answer = garden.post("/graphql", body).await.expect(200);
        answer["errors"][0]["message"].as_str().unwrap_or_default().to_owned()
    };
    let repository = |inner: &str| {
        format!("{{ repository(owner: \"pear-garden\", name: \"orchard\") {{ {inner} }} }}")
    };
    assert_eq!(ask(&repository("name")).await, "");
    let cases = [
        ("headline", "doesn't exist"),
        ("issue { number }", "missing required"),
        ("issue(number: 1, id: 2) { number }", "doesn't accept"),
        ("issue(number: 1) { comments { totalCount } }", "first"),
        ("issue(number: 1)", "must have selections"),
        ("name { first }", "scalars"),
        (
            "issue(number: 1) { timelineItems(last: 1, itemTypes: [LABELED]) { totalCount } }",
            "invalid",
        ),
        ("issue(number: 1) { ... on Thing { id } }", "no type"),
        ("issue(number: 1) {", "expected"),
    ];
    for (inner, words) in cases {
        let message = ask(&repository(inner)).await;
        assert!(message.to_lowercase().contains(words), "{inner}: {message}");
    }
    assert_eq!(garden.github.take_violations().len(), cases.len());
}
