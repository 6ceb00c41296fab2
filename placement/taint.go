package placement

import "slices"

// Taint keeps tasks away from a machine that do not tolerate it. What runs there stays.
type Taint struct {
	Key, Value string
	// Users, when not empty, are the only ones whose tasks can tolerate it.
	Users []string
}

// String returns key=value, or the key if there is no value.
func (t *Taint) String() string {
	if t.Value == "" {
		return t.Key
	}
	return t.Key + "=" + t.Value
}

// Toleration is what a task does not mind of machines.
type Toleration struct {
	Key string // of taints; "" is any
	// Value is that of the taint; "" is any.
	Value string
}

// intolerable returns the first taint that a task of a user does not tolerate; nil for none.
func intolerable(taints []Taint, tolerations []Toleration, user string) *Taint {
	for i := range taints {
		t := &taints[i]
		if len(t.Users) > 0 && !slices.Contains(t.Users, user) || !slices.ContainsFunc(tolerations, func(o Toleration) bool {
			return (o.Key == "" || o.Key == t.Key) && (o.Value == "" || o.Value == t.Value)
		}) {
			return t
		}
	}
	return nil
}
