"""Branches, tags, pull requests and discussions with the real client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from huggingface_hub.community import DiscussionComment, DiscussionCommit, DiscussionStatusChange
from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RevisionNotFoundError

from demo.hub import HubServer

Client = Callable[..., HfApi]


def put(api: HfApi, repo_id: str, name: str, content: bytes, **more: bool | str) -> str:
    done = api.upload_file(path_or_fileobj=content, path_in_repo=name, repo_id=repo_id, **more)  # type: ignore[call-overload]
    return str(done.oid)


def test_branch_from_a_revision_and_commit_on_it(hub: HubServer, seeded: str, api: Client) -> None:
    first = hub.repo(seeded).resolve("main").id
    main = put(api(), seeded, "a.txt", b"a")
    api().create_branch(seeded, branch="feature/x", revision=first)
    branch = put(api(), seeded, "b.txt", b"b", revision="feature/x")
    refs = api().list_repo_refs(seeded)
    assert {ref.name: ref.target_commit for ref in refs.branches} == {"main": main, "feature/x": branch}
    assert "a.txt" not in api().list_repo_files(seeded, revision="feature/x")
    with pytest.raises(HfHubHTTPError, match="already exists") as caught:
        api().create_branch(seeded, branch="feature/x")
    assert caught.value.response.status_code == 409
    api().create_branch(seeded, branch="feature/x", exist_ok=True)
    api().delete_branch(seeded, branch="feature/x")
    assert [ref.name for ref in api().list_repo_refs(seeded).branches] == ["main"]


@pytest.mark.parametrize("name", ["refs/pr/1", "../x", "a..b", "x.lock", "a b", "0" * 40])
def test_branch_names_git_refuses(seeded: str, api: Client, name: str) -> None:
    with pytest.raises(BadRequestError, match=r"Invalid reference name|named like a commit"):
        api().create_branch(seeded, branch=name)


def test_main_cannot_be_deleted(seeded: str, api: Client) -> None:
    with pytest.raises(HfHubHTTPError, match="The branch main cannot be deleted"):
        api().delete_branch(seeded, branch="main")


def test_tag_stays_when_the_branch_moves(hub: HubServer, seeded: str, api: Client) -> None:
    first = hub.repo(seeded).resolve("main").id
    api().create_tag(seeded, tag="v1.0", tag_message="the first")
    put(api(), seeded, "a.txt", b"a")
    assert api().model_info(seeded, revision="v1.0").sha == first
    assert api().model_info(seeded, revision=first[:8]).sha == first
    assert [(tag.name, tag.target_commit) for tag in api().list_repo_refs(seeded).tags] == [("v1.0", first)]
    with pytest.raises(HfHubHTTPError) as caught:
        api().create_tag(seeded, tag="v1.0")
    assert caught.value.response.status_code == 409
    with pytest.raises(BadRequestError, match=r"v1\.0 is a tag"):
        put(api(), seeded, "b.txt", b"b", revision="v1.0")
    api().delete_tag(seeded, tag="v1.0")
    with pytest.raises(RevisionNotFoundError):
        api().delete_tag(seeded, tag="v1.0")


def test_tag_of_an_unknown_revision(seeded: str, api: Client) -> None:
    with pytest.raises(RevisionNotFoundError, match="Invalid rev id: none"):
        api().create_tag(seeded, tag="v1", revision="none")


def test_commit_to_an_unknown_branch(seeded: str, api: Client) -> None:
    with pytest.raises(RevisionNotFoundError):
        put(api(), seeded, "a.txt", b"a", revision="none")


def test_upload_folder_as_a_pull_request_and_merge(hub: HubServer, repo_id: str, folder: Path, api: Client) -> None:
    api().create_repo(repo_id)
    done = api().upload_folder(repo_id=repo_id, folder_path=folder, create_pr=True, commit_message="release")
    assert (done.pr_num, done.pr_revision) == (1, "refs/pr/1")
    assert api().list_repo_files(repo_id) == [".gitattributes"]
    assert "model.safetensors" in api().list_repo_files(repo_id, revision="refs/pr/1")
    refs = api().list_repo_refs(repo_id, include_pull_requests=True)
    assert [(ref.ref, ref.target_commit) for ref in refs.pull_requests or []] == [("refs/pr/1", done.oid)]
    put(api(), repo_id, "extra.txt", b"x", revision="refs/pr/1")
    details = api().get_discussion_details(repo_id, 1)
    assert (details.status, details.is_pull_request, details.conflicting_files) == ("open", True, [])
    assert next(event.summary for event in details.events if isinstance(event, DiscussionCommit)) == "release"
    assert details.diff is not None
    assert "+# A <b>card</b>" in details.diff
    assert "+size 300000" in details.diff
    api().merge_pull_request(repo_id, 1, comment="thanks")
    assert "extra.txt" in api().list_repo_files(repo_id)
    merged = api().get_discussion_details(repo_id, 1)
    assert (merged.status, merged.merge_commit_oid) == ("merged", api().model_info(repo_id).sha)
    assert hub.repo(repo_id).resolve("main").title == "release (#1)"


def test_pull_request_opened_first_then_filled(seeded: str, api: Client) -> None:
    request = api().create_pull_request(seeded, "Add a file", description="why")
    assert (request.num, request.status, request.git_reference) == (1, "draft", "refs/pr/1")
    put(api(), seeded, "a.txt", b"a", revision="refs/pr/1")
    assert isinstance(api().change_discussion_status(seeded, 1, "open"), DiscussionStatusChange)
    api().merge_pull_request(seeded, 1)
    assert "a.txt" in api().list_repo_files(seeded)


def test_merge_keeps_what_main_did_meanwhile(seeded: str, api: Client) -> None:
    put(api(), seeded, "theirs.txt", b"theirs", create_pr=True)
    put(api(), seeded, "ours.txt", b"ours")
    api().merge_pull_request(seeded, 1)
    assert {"theirs.txt", "ours.txt"} <= set(api().list_repo_files(seeded))


def test_conflict_is_not_merged(hub: HubServer, seeded: str, api: Client) -> None:
    put(api(), seeded, "config.json", b"theirs", create_pr=True)
    ours = put(api(), seeded, "config.json", b"ours")
    assert api().get_discussion_details(seeded, 1).conflicting_files == ["config.json"]
    with pytest.raises(HfHubHTTPError, match=r"conflicts with main in: config\.json"):
        api().merge_pull_request(seeded, 1)
    assert hub.repo(seeded).resolve("main").id == ours
    assert api().get_discussion_details(seeded, 1).status == "open"


def test_closed_pull_request_takes_no_commit(seeded: str, api: Client) -> None:
    put(api(), seeded, "a.txt", b"a", create_pr=True)
    api().change_discussion_status(seeded, 1, "closed", comment="no")
    with pytest.raises(BadRequestError, match="The pull request is closed"):
        put(api(), seeded, "b.txt", b"b", revision="refs/pr/1")


def test_a_stranger_may_propose_but_not_merge(hub: HubServer, seeded: str, api: Client) -> None:
    put(api("stranger"), seeded, "a.txt", b"a", create_pr=True)
    with pytest.raises(HfHubHTTPError, match="doesn't have the rights to write under the namespace demo"):
        api("stranger").merge_pull_request(seeded, 1)
    put(api("write"), seeded, "b.txt", b"b", create_pr=True)
    with pytest.raises(HfHubHTTPError, match="doesn't have the rights"):
        put(api("stranger"), seeded, "c.txt", b"c", revision="refs/pr/2")
    assert "c.txt" not in hub.repo(seeded).resolve("refs/pr/2").files


def test_discussion(seeded: str, api: Client) -> None:
    api().create_discussion(seeded, "A question", description="what is this?")
    comment = api("stranger").comment_discussion(seeded, 1, "an <i>answer</i>")
    assert isinstance(comment, DiscussionComment)
    assert (comment.author, comment.content, comment.rendered) == (
        "stranger",
        "an <i>answer</i>",
        "<p>an &lt;i&gt;answer&lt;/i&gt;</p>",
    )
    api().rename_discussion(seeded, 1, "Another title")
    put(api(), seeded, "a.txt", b"a", create_pr=True)
    listed = list(api(None).get_repo_discussions(seeded, discussion_type="discussion"))
    assert [(item.num, item.title, item.is_pull_request) for item in listed] == [(1, "Another title", False)]
    assert [item.num for item in api().get_repo_discussions(seeded)] == [2, 1]
    with pytest.raises(BadRequestError, match="Discussion 1 is no pull request"):
        api().merge_pull_request(seeded, 1)
    with pytest.raises(HfHubHTTPError, match="Discussion 3 not found"):
        api().get_discussion_details(seeded, 3)
