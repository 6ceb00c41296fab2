package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// TestRegistries: images come from a mirror of the cell, and with logins that are secrets. A
// wrong password is reported; another one lets in at once, and restarts nothing.
func TestRegistries(t *testing.T) {
	t.Parallel()
	c := newSecretCell(t)
	c.until("the agent says what it can", func(s *status.Status) string {
		if m := s.Machines[0]; m.Attributes[schema.HasContainers] != "true" || m.Attributes[schema.HasSecrets] != "true" {
			t.Skipf("NOT TESTED: needs a runtime of containers, and a file system in memory: %v", m.Notes)
		}
		return ""
	})
	layer := imagetest.Busybox(t, nil)
	image := func(name string) imagetest.Image {
		return imagetest.Of(t, layer, imagetest.Settings{Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{webScript}, Env: []string{"PATH=/bin", "IMAGE=" + name}})
	}
	private, gone, mirror := imagetest.NewRegistry(t), imagetest.NewRegistry(t), imagetest.NewRegistry(t)
	first, second := private.Add("first", image("first")), private.Add("second", image("second"))
	mirrored := gone.Add("app", image("app"))
	hostOf := func(image string) string { host, _, _ := strings.Cut(image, "/"); return host }
	other := hostOf(mirror.Add("app", image("app")))
	gone.Down()
	private.Require("robot", marks[1])
	mirror.Require("robot", marks[2])

	commit := func(message string, jobs ...contained) string {
		t.Helper()
		cell := fmt.Sprintf("package %s\n\nimport \"%s/muster\"\n\ncell: %q: muster.#Cell & {quota: \"off\", registries: {%q: mirrors: [%q], %q: login: \"crew/mirror\"}}\n", cellName, module, cellName, hostOf(mirrored), other, other)
		text := string(containers(jobs...))
		for name, of := range map[string]string{"pull": fmt.Sprintf("registry: %q, ", hostOf(first)), "mirror": ""} {
			text += fmt.Sprintf("\nsecret: %s: muster.#Secret & {user: \"crew\", cell: %q, %sage: %s}\n", name, cellName, of, strconv.Quote(c.age[name]))
		}
		return c.commit(message, map[string][]byte{teamFile: []byte(text), "cells/" + cellName + "/cell.cue": []byte(cell)})
	}
	c.secretive.seal("pull", "robot:"+marks[0])
	c.secretive.seal("mirror", "robot:"+marks[2]+"\n")
	jobs := []contained{{name: "private", image: first}, {name: "mirrored", image: mirrored}}
	since := commit("a wrong password", jobs...)
	mirrorTask := c.healthy("mirrored", 1)["crew/mirrored/0"]
	c.causes(map[string]string{"private": `not authorized by the registry: it refuses the credentials of "robot" (secret crew/pull)`})

	c.secretive.seal("pull", "robot:"+marks[1])
	commit("the right password", jobs...)
	was := c.healthy("private", 1)["crew/private/0"]

	// Another password is for the next pull: the task that runs is not touched.
	private.Require("robot", marks[0])
	c.secretive.seal("pull", "robot:"+marks[0])
	commit("another password", append(jobs, contained{name: "next", image: second})...)
	c.healthy("next", 1)
	for name, task := range map[string]status.TaskStatus{"private": was, "mirrored": mirrorTask} {
		if now := c.healthy(name, 1)["crew/"+name+"/0"]; now.PID != task.PID {
			t.Errorf("%s is process %d after the password was exchanged, and was %d", name, now.PID, task.PID)
		}
	}
	if said := c.says("why", "crew/next/0"); said == "" {
		t.Error("muster why says nothing")
	}
	if found := silentIn(t, c.dir); found < 20 {
		t.Errorf("%d files were searched", found)
	}
	c.tap.mu.Lock()
	if found := leaked(c.tap.said.Bytes()); len(found) > 0 {
		t.Errorf("the link has carried %q in clear", found)
	}
	c.tap.mu.Unlock()
	for _, args := range [][]string{{"status", "-o", "json"}, {"why", "crew/private/0"}, {"diff", since + "..HEAD"}, {"render", c.repo}} {
		cmd := c.command(args...)
		cmd.Env, cmd.Dir = append(os.Environ(), "MUSTER_MASTER="+c.url), c.repo
		b, err := cmd.CombinedOutput()
		if len(b) < 20 || len(leaked(b)) > 0 {
			t.Errorf("muster %s says %q in clear: %v, %d bytes", strings.Join(args, " "), leaked(b), err, len(b))
		}
	}
}
