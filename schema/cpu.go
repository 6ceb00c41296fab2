package schema

import "strconv"

// CPU writes thousandths of a core for people: "500m", and whole cores without the
// letter: "2".
func CPU(milli int64) string {
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli, 10) + "m"
}
