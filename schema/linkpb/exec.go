package linkpb

import "github.com/musterhq/muster/schema"

// EncodeExecRequest returns the message that asks an agent for a session; id
// names the stream that shall carry it.
func EncodeExecRequest(id string, r *schema.ExecRequest) *OpenExec {
	m := &OpenExec{Id: id, Task: r.Task.String(), Tty: r.TTY, Rows: uint32(r.Rows), Columns: uint32(r.Columns), Term: r.Term}
	for _, a := range r.Command {
		m.Command = append(m.Command, []byte(a)) // an argument need not be UTF-8
	}
	if c := r.Copy; c != nil {
		m.Copy = &ExecCopy{Direction: string(c.Direction), Path: []byte(c.Path), Name: []byte(c.Name)}
	}
	return m
}

// DecodeExecRequest returns the request of a message. It errs when it cannot be
// one.
func DecodeExecRequest(m *OpenExec) (schema.ExecRequest, error) {
	task, err := schema.ParseTaskName(m.GetTask())
	if err != nil {
		return schema.ExecRequest{}, err
	}
	r := schema.ExecRequest{Task: task, TTY: m.GetTty(), Rows: int(m.GetRows()), Columns: int(m.GetColumns()), Term: m.GetTerm()}
	for _, a := range m.GetCommand() {
		r.Command = append(r.Command, string(a))
	}
	if c := m.GetCopy(); c != nil {
		r.Copy = &schema.ExecCopy{Direction: schema.CopyDirection(c.GetDirection()), Path: string(c.GetPath()), Name: string(c.GetName())}
	}
	return r, r.Check()
}
