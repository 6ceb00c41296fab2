#include "textflag.h"

// func vfork(number, first, second uintptr, e unsafe.Pointer) (result uintptr)
TEXT ·vfork(SB), NOSPLIT, $0-40
	MOVD number+0(FP), R8
	MOVD first+8(FP), R0
	MOVD second+16(FP), R1
	MOVD e+24(FP), R19 // which the kernel keeps
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	SVC
	CBZ  R0, child
	MOVD R0, result+32(FP)
	RET

child:
	// On its own stack, which begins here. The call is by a register: what it takes is none of the
	// caller's stack, which the linker would add.
	SUB  $32, RSP
	MOVD R19, 8(RSP)
	MOVD $·goOn(SB), R20
	CALL (R20)
	BRK
