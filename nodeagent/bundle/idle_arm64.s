#include "textflag.h"

// func cloneIdle(flags uintptr) int
TEXT ·cloneIdle(SB), NOSPLIT, $0-16
	// clone(flags, NULL, NULL, 0, NULL)
	MOVD flags+0(FP), R0
	MOVD ZR, R1
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8
	SVC
	CBZ  R0, child
	MOVD R0, ret+8(FP)
	RET

child:
	// prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
	MOVD $1, R0
	MOVD $9, R1
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $167, R8
	SVC

wait:
	// ppoll(NULL, 0, NULL, NULL, 0)
	MOVD ZR, R0
	MOVD ZR, R1
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $73, R8
	SVC
	B    wait
