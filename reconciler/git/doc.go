// Package git is the commit source: which commit is the head of the config
// repository, and what is in it. It is the only importer of go-git.
//
// In: a repository (a path or file:// URL, or a remote by https, ssh, http or
// git) and a branch. Out: model.Seen values from Run, and schema.Tree
// values, which share their data with the cache here and must not be changed.
//
// A local repository is read where it is, its object store directly: ordinary
// and bare ones, linked work trees (.git is a file) and alternates with
// absolute paths; neither its work tree nor the git program is used. Watches
// of HEAD, packed-refs and refs make a commit visible at once.
//
// Of a remote, the head is listed at each look and only when it moved one commit
// is fetched (depth 1) into a bare store below Config.Dir. What is wrong with
// the store is repaired by a new one that replaces it once it has the head, so
// what was fetched stays readable. Credentials, and whom to trust, are in files
// that Auth names; the URL holds no secret, and there is no fall-back to an ssh
// agent, a home directory or the environment, but for the proxies of https. An
// error of a remote is one line and a hint, holds nothing secret, and is the
// same text for the same trouble.
//
// Not supported: SHA-256 and reftable repositories, alternates with relative
// paths, dumb http, client certificates, servers that insist
// on multi_ack (Azure DevOps, AWS CodeCommit).
//
// A Tree holds the *.cue files, all of cue.mod and, if a CUE file says @embed,
// every other file of up to 1 MiB (the rule of compile.ReadDir). Directories
// whose name begins with a dot are left out. Symbolic links and submodules are
// not followed and are reported as warnings. What was read is kept by blob and
// directory hash, so a commit costs what it changed.
//
// Every object's content is held against its hash. go-git is not safe for
// concurrent use, reads included: one mutex owns it, and a Repo may be called
// from any goroutine. Nothing here ever writes to the config repository;
// Init, Commit and UseHooks, for demo, init and tests, are on their own.
package git
